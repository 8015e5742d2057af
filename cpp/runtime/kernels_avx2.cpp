// The kernels with 256-bit vectors and the processor's own half conversions. Compiled with -mavx2 -mf16c; nothing
// here may run before kernels.cpp has asked the processor. Only arithmetic on halves is written out: the compiler
// does the rest as well.
//
// Python half: src/weft/runtime/buffers.py.
#include <immintrin.h>

#include "runtime/kernels_operators.hpp"

namespace weft::runtime {
namespace {

constexpr size_t width = 16;

// Sixteen halves, as two vectors of floats.
struct Floats {
    __m256 first, second;
};

struct HalfVector {
    static Floats load(const void* halves) {
        auto* part = static_cast<const __m128i_u*>(halves);
        return {_mm256_cvtph_ps(_mm_loadu_si128(part)), _mm256_cvtph_ps(_mm_loadu_si128(part + 1))};
    }
    static void store(void* halves, Floats floats) {
        auto* part = static_cast<__m128i_u*>(halves);
        _mm_storeu_si128(part, _mm256_cvtps_ph(floats.first, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128(part + 1, _mm256_cvtps_ph(floats.second, _MM_FROUND_TO_NEAREST_INT));
    }
};

// Even elements in one vector and odd ones in the other: shifts and masks, where keeping their order would take
// shuffles.
struct BrainVector {
    static Floats load(const void* brains) {
        __m256i bits = _mm256_loadu_si256(static_cast<const __m256i_u*>(brains));
        return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000))))};
    }
    // The upper sixteen bits of each element are the answer. A NaN is quiet already, since arithmetic made it.
    static __m256i round(__m256 floats) {
        __m256i bits = _mm256_castps_si256(floats);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        __m256 nan = _mm256_cmp_ps(floats, floats, _CMP_UNORD_Q);
        return _mm256_add_epi32(bits, _mm256_andnot_si256(_mm256_castps_si256(nan), up));
    }
    static void store(void* brains, Floats floats) {
        __m256i bits = _mm256_blend_epi16(_mm256_srli_epi32(round(floats.first), 16), round(floats.second), 0xaa);
        _mm256_storeu_si256(static_cast<__m256i_u*>(brains), bits);
    }
};

struct SumVector {
    static __m256 apply(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};

struct ProdVector {
    static __m256 apply(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
};

char* at(void* values, size_t index) { return static_cast<char*>(values) + index * sizeof(uint16_t); }
const char* at(const void* values, size_t index) { return static_cast<const char*>(values) + index * sizeof(uint16_t); }

template <typename Vector, typename Operation>
void combine_vector(void* out, const void* a, const void* b) {
    Floats left = Vector::load(a);
    Floats right = Vector::load(b);
    Vector::store(out, {Operation::apply(left.first, right.first), Operation::apply(left.second, right.second)});
}

template <typename Vector, typename Operation>
void combine_halves(void* out, const void* a, const void* b, size_t elements) {
    size_t rest = elements % width;
    size_t whole = elements - rest;
    for (size_t i = 0; i < whole; i += width) combine_vector<Vector, Operation>(at(out, i), at(a, i), at(b, i));
    if (rest == 0) return;
    uint16_t left[width]{}, right[width]{};
    __builtin_memcpy(left, at(a, whole), rest * sizeof(uint16_t));
    __builtin_memcpy(right, at(b, whole), rest * sizeof(uint16_t));
    combine_vector<Vector, Operation>(left, left, right);
    __builtin_memcpy(at(out, whole), left, rest * sizeof(uint16_t));
}

template <typename Vector>
void divide_vector(void* values, __m256 by) {
    Floats floats = Vector::load(values);
    Vector::store(values, {_mm256_div_ps(floats.first, by), _mm256_div_ps(floats.second, by)});
}

template <typename Vector>
void divide_halves(void* values, size_t elements, int64_t by) {
    __m256 divisor = _mm256_set1_ps(static_cast<float>(by));
    size_t rest = elements % width;
    size_t whole = elements - rest;
    for (size_t i = 0; i < whole; i += width) divide_vector<Vector>(at(values, i), divisor);
    if (rest == 0) return;
    uint16_t last[width]{};
    __builtin_memcpy(last, at(values, whole), rest * sizeof(uint16_t));
    divide_vector<Vector>(last, divisor);
    __builtin_memcpy(at(values, whole), last, rest * sizeof(uint16_t));
}

template <typename Element, typename Vector>
constexpr TypeKernels half_kernels{
    {combine_halves<Vector, SumVector>, combine_halves<Vector, SumVector>, combine<Element, Min>, combine<Element, Max>,
     combine_halves<Vector, ProdVector>, nullptr, nullptr, nullptr},
    divide_halves<Vector>};

}  // namespace

constinit const Level avx2_level{
    "avx2",
    {half_kernels<Half, HalfVector>, half_kernels<Brain, BrainVector>, floating_kernels<Direct<float>>,
     floating_kernels<Direct<double>>, integer_kernels<int32_t, uint32_t>, integer_kernels<int64_t, uint64_t>,
     integer_kernels<int16_t, uint32_t>, integer_kernels<int8_t, uint32_t>, integer_kernels<uint8_t, uint32_t>}};

}  // namespace weft::runtime
