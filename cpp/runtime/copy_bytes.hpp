// Copies of a few kilobytes and more.
//
// The C library uses `rep movsb` for these. On some processors (AMD's Zen 3 and 4 among them) that is ten times slower
// when the target lies a few bytes after the source, counted within a page; and that is how an array of numpy lies,
// 16 bytes into its first page, beside memory that begins with its page. Plain vector moves do not mind.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::runtime {

inline void copy_bytes(std::byte* into, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
    auto* to = reinterpret_cast<__m128i*>(into);
    const auto* at = reinterpret_cast<const __m128i*>(from);
    for (; bytes >= 64; bytes -= 64, to += 4, at += 4) {
        __m128i a = _mm_loadu_si128(at), b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2),
                d = _mm_loadu_si128(at + 3);
        _mm_storeu_si128(to, a);
        _mm_storeu_si128(to + 1, b);
        _mm_storeu_si128(to + 2, c);
        _mm_storeu_si128(to + 3, d);
    }
    into = reinterpret_cast<std::byte*>(to);
    from = reinterpret_cast<const std::byte*>(at);
#endif
    std::memcpy(into, from, bytes);
}

}  // namespace weft::runtime
