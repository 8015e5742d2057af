// Arithmetic on float16 and bfloat16 in vectors as wide as the including file may use: 512 bits with AVX-512, else 256.
// Nothing here may run before kernels.cpp has asked the processor. Minima and maxima are left to the compiler, which
// makes vectors of them as well.
//
// Python half: src/weft/runtime/buffers.py.
#pragma once

#include <immintrin.h>

#include "runtime/kernels_operators.hpp"

namespace weft::runtime {
namespace {

#ifdef __AVX512F__
constexpr size_t vector_bytes = 64;
#else
constexpr size_t vector_bytes = 32;
#endif

using Floats = float __attribute__((vector_size(vector_bytes)));
using Words = uint32_t __attribute__((vector_size(vector_bytes)));

#ifdef __AVX512F__

using Shorts = uint16_t __attribute__((vector_size(vector_bytes)));

// With a mask, though of ones, because GCC 12 warns of the value that is undefined where there is none.
constexpr __mmask16 all = 0xffff;

Floats widen(const void* halves) {
    return _mm512_maskz_cvtph_ps(all, _mm256_loadu_si256(static_cast<const __m256i_u*>(halves)));
}

void narrow(void* halves, Floats floats) {
    __m256i narrowed = _mm512_maskz_cvtps_ph(all, floats, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(static_cast<__m256i_u*>(halves), narrowed);
}

// Rounded once, as an addition is, but by those units of the processor that do not convert halves at the same time.
Floats add(Floats a, Floats b) { return _mm512_fmadd_ps(a, _mm512_set1_ps(1), b); }

Words load_words(const void* words) {
    __m512i loaded = _mm512_loadu_si512(words);
    // GCC would load it twice rather than keep it in a register, which is slower where memory is far.
    asm("" : "+v"(loaded));
    return (Words)loaded;
}

// All are rounded together: up, if what is cut off is more than a half, or just a half and the rest is odd.
Words pack_brains(Words even, Words odd) {
    constexpr Words upper{0x210001, 0x230003, 0x250005, 0x270007, 0x290009, 0x2b000b, 0x2d000d, 0x2f000f,
                          0x310011, 0x330013, 0x350015, 0x370017, 0x390019, 0x3b001b, 0x3d001d, 0x3f001f};
    auto kept = (Shorts)_mm512_permutex2var_epi16((__m512i)even, (__m512i)upper, (__m512i)odd);
    auto cut = (Shorts)_mm512_permutex2var_epi16((__m512i)even, (__m512i)(upper - 0x10001), (__m512i)odd);
    Shorts least = (~kept & 1) | 0x8000;
    __mmask32 up = _mm512_cmpge_epu16_mask((__m512i)cut, (__m512i)least);
    return (Words)_mm512_mask_add_epi16((__m512i)kept, up, (__m512i)kept, _mm512_set1_epi16(1));
}

#else

Floats widen(const void* halves) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i_u*>(halves))); }

void narrow(void* halves, Floats floats) {
    _mm_storeu_si128(static_cast<__m128i_u*>(halves), _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
}

Floats add(Floats a, Floats b) { return a + b; }

Words load_words(const void* words) { return load<Words>(words, 0); }

// To the nearest, and to an even one of two, in the upper sixteen bits.
Words rounded(Words bits) { return bits + 0x7fff + (bits >> 16 & 1); }

Words pack_brains(Words even, Words odd) {
    return (Words)_mm256_blend_epi16((__m256i)(rounded(even) >> 16), (__m256i)rounded(odd), 0xaa);
}

#endif

// The numbers of one vector of words.
struct Pair {
    Floats first, second;
};

struct HalfVector {
    static constexpr size_t half = sizeof(Words) / 2;
    static Pair load(const char* halves) { return {widen(halves), widen(halves + half)}; }
    static void store(char* halves, Pair pair) {
        narrow(halves, pair.first);
        narrow(halves + half, pair.second);
    }
};

// Even elements in one vector and odd ones in the other: shifts and masks, where keeping their order would take
// shuffles. A NaN needs no care when it is rounded. It comes from arithmetic, so it is quiet already, and the bits cut
// off are zero, as they are in every bfloat16 and in the NaN that the processor makes.
struct BrainVector {
    static Pair load(const char* brains) {
        Words words = load_words(brains);
        return {(Floats)(words << 16), (Floats)(words & 0xffff0000)};
    }
    static void store(char* brains, Pair pair) {
        weft::runtime::store(brains, 0, pack_brains((Words)pair.first, (Words)pair.second));
    }
};

// out = compute(a, b), by vectors; what is left fills a part of one.
template <typename Vector, typename Compute>
void each_vector(char* out, const char* a, const char* b, size_t elements, Compute compute) {
    auto one = [compute](char* to, const char* from, const char* other) {
        Pair left = Vector::load(from), right = Vector::load(other);
        Vector::store(to, {compute(left.first, right.first), compute(left.second, right.second)});
    };
    size_t bytes = elements * sizeof(uint16_t);
    size_t rest = bytes % sizeof(Words);
    size_t whole = bytes - rest;
    for (size_t i = 0; i < whole; i += sizeof(Words)) one(out + i, a + i, b + i);
    if (rest == 0) return;
    char left[sizeof(Words)]{}, right[sizeof(Words)]{};
    __builtin_memcpy(left, a + whole, rest);
    __builtin_memcpy(right, b + whole, rest);
    one(left, left, right);
    __builtin_memcpy(out + whole, left, rest);
}

struct Add {
    Floats operator()(Floats a, Floats b) const { return add(a, b); }
};

struct Multiply {
    Floats operator()(Floats a, Floats b) const { return a * b; }
};

template <typename Vector, typename Compute>
void combine_vectors(void* out, const void* a, const void* b, size_t elements) {
    each_vector<Vector>(static_cast<char*>(out), static_cast<const char*>(a), static_cast<const char*>(b), elements,
                        Compute{});
}

template <typename Vector>
void divide_vectors(void* values, size_t elements, int64_t by) {
    auto* at = static_cast<char*>(values);
    auto divisor = static_cast<float>(by);
    float factor = 1 / divisor;
    // The reciprocal of a power of two is exact, and a product takes less time than a quotient.
    if (bits_of(divisor) << 9 == 0) {
        each_vector<Vector>(at, at, at, elements, [factor](Floats value, Floats) { return value * factor; });
    } else {
        each_vector<Vector>(at, at, at, elements, [divisor](Floats value, Floats) { return value / divisor; });
    }
}

// Starts vectors where those of `out` cross no cache line, if there are enough of them. Other operands mostly lie alike.
template <Combine kernel>
void aligned(void* out, const void* a, const void* b, size_t elements) {
    constexpr size_t enough = 1024;
    size_t head = -reinterpret_cast<uintptr_t>(out) % vector_bytes / sizeof(uint16_t);
    if (elements < enough) head = 0;
    if (head > 0) kernel(out, a, b, head);
    kernel(static_cast<uint16_t*>(out) + head, static_cast<const uint16_t*>(a) + head,
           static_cast<const uint16_t*>(b) + head, elements - head);
}

template <typename Element, typename Vector>
constexpr TypeKernels vector_kernels{
    {aligned<combine_vectors<Vector, Add>>, aligned<combine_vectors<Vector, Add>>, aligned<combine<Element, Min>>,
     aligned<combine<Element, Max>>, aligned<combine_vectors<Vector, Multiply>>, nullptr, nullptr, nullptr},
    divide_vectors<Vector>};

}  // namespace
}  // namespace weft::runtime
