// The kernels with 256-bit vectors and the processor's own half conversions. Compiled with -mavx2 -mf16c; nothing
// here may run before kernels.cpp has asked the processor. Only arithmetic on halves is written out: the compiler
// does the rest as well.
#include <immintrin.h>

#include "kernels_loops.hpp"

namespace weft::runtime {
namespace {

// Sixteen halves, as two vectors of floats.
struct Floats {
    __m256 first, second;
};

struct HalfVector {
    static Floats widen(__m256i halves) {
        return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
    }
    static __m256i narrow(Floats floats) {
        return _mm256_set_m128i(_mm256_cvtps_ph(floats.second, _MM_FROUND_TO_NEAREST_INT),
                                _mm256_cvtps_ph(floats.first, _MM_FROUND_TO_NEAREST_INT));
    }
};

// Even elements in one vector and odd ones in the other: shifts and masks, where an order of their own would take
// shuffles.
struct BrainVector {
    static Floats widen(__m256i brains) {
        return {_mm256_castsi256_ps(_mm256_slli_epi32(brains, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(brains, _mm256_set1_epi32(static_cast<int>(0xffff0000))))};
    }
    // The upper sixteen bits of each element are the answer.
    static __m256i round(__m256 floats) {
        __m256i bits = _mm256_castps_si256(floats);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
        __m256 nan = _mm256_cmp_ps(floats, floats, _CMP_UNORD_Q);
        return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    }
    static __m256i narrow(Floats floats) {
        return _mm256_blend_epi16(_mm256_srli_epi32(round(floats.first), 16), round(floats.second), 0xaa);
    }
};

struct SumVector {
    static __m256 apply(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};

struct ProdVector {
    static __m256 apply(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
};

constexpr size_t width = 16;

__m256i load_vector(const void* values, size_t index) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(values) + index * 2));
}

void store_vector(void* values, size_t index, __m256i vector) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(values) + index * 2), vector);
}

// The elements after the last whole vector, fewer than one: they are computed in a vector of their own.
struct Rest {
    size_t from, bytes;
    explicit Rest(size_t elements) : from(elements - elements % width), bytes(elements % width * 2) {}
    __m256i load(const void* values) const {
        uint16_t buffer[width]{};
        __builtin_memcpy(buffer, static_cast<const char*>(values) + from * 2, bytes);
        return load_vector(buffer, 0);
    }
    void store(void* values, __m256i vector) const {
        uint16_t buffer[width];
        store_vector(buffer, 0, vector);
        __builtin_memcpy(static_cast<char*>(values) + from * 2, buffer, bytes);
    }
};

template <typename Element, typename Operation>
__m256i combine_vector(__m256i a, __m256i b) {
    Floats left = Element::widen(a);
    Floats right = Element::widen(b);
    return Element::narrow({Operation::apply(left.first, right.first), Operation::apply(left.second, right.second)});
}

template <typename Element, typename Operation>
void combine_halves(void* out, const void* a, const void* b, size_t elements) {
    Rest rest(elements);
    for (size_t i = 0; i < rest.from; i += width) {
        store_vector(out, i, combine_vector<Element, Operation>(load_vector(a, i), load_vector(b, i)));
    }
    if (rest.bytes) rest.store(out, combine_vector<Element, Operation>(rest.load(a), rest.load(b)));
}

template <typename Element>
__m256i divide_vector(__m256i values, __m256 by) {
    Floats floats = Element::widen(values);
    return Element::narrow({_mm256_div_ps(floats.first, by), _mm256_div_ps(floats.second, by)});
}

template <typename Element>
void divide_halves(void* values, size_t elements, int64_t by) {
    Rest rest(elements);
    __m256 divisor = _mm256_set1_ps(static_cast<float>(by));
    for (size_t i = 0; i < rest.from; i += width) {
        store_vector(values, i, divide_vector<Element>(load_vector(values, i), divisor));
    }
    if (rest.bytes) rest.store(values, divide_vector<Element>(rest.load(values), divisor));
}

template <typename Element, typename Vector>
constexpr TypeKernels half_kernels{{combine_halves<Vector, SumVector>, combine_halves<Vector, SumVector>,
                                    combine<Element, Min>, combine<Element, Max>, combine_halves<Vector, ProdVector>},
                                   divide_halves<Vector>};

}  // namespace

constinit const Level avx2_level{
    "avx2",
    {half_kernels<Half, HalfVector>, half_kernels<Brain, BrainVector>, floating_kernels<Direct<float>>,
     floating_kernels<Direct<double>>, integer_kernels<int32_t, uint32_t>, integer_kernels<int64_t, uint64_t>}};

}  // namespace weft::runtime
