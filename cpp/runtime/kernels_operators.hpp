// The operators of reductions and the types they work on, as portable loops: written so that compilers vectorise
// them, for whatever instructions the including file is compiled with. All names here are local to that file, and
// nothing from the standard library is called: a function shared between files could be kept in the version that
// this machine cannot run.
//
// Python half: src/weft/runtime/buffers.py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels_level.hpp"

// Regions do not overlap partially: no iteration reads what another one writes.
#ifdef __clang__
#define WEFT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEFT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace weft::runtime {
namespace {

// A T at any address. Copied bytes would do, but compilers then see integers, and no minimum of floats.
template <typename T>
struct [[gnu::packed, gnu::may_alias]] Anywhere {
    T value;
};

template <typename T>
T load(const void* values, size_t index) {
    return static_cast<const Anywhere<T>*>(values)[index].value;
}

template <typename T>
void store(void* values, size_t index, T value) {
    static_cast<Anywhere<T>*>(values)[index].value = value;
}

uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// An element type: how it is stored, the type it is computed in, and which of two values is the lower or higher.
// The choices are written without short circuits, as the processor's own minimum and maximum make them.
template <typename T>
struct Direct {
    using Stored = T;
    using Computed = T;
    static T widen(T value) { return value; }
    static T narrow(T value) { return value; }
    static T lower(T a, T b) {
        T chosen = a < b ? a : b;
        return a != a ? a : chosen;
    }
    static T higher(T a, T b) {
        T chosen = a > b ? a : b;
        return a != a ? a : chosen;
    }
};

// Unsigned arithmetic wraps; signed overflow would be undefined. Small types are computed in 32 bits, as C++ would
// by itself, but signed.
template <typename Signed, typename Unsigned>
struct Integer {
    using Stored = Signed;
    using Computed = Unsigned;
    static Unsigned widen(Signed value) { return static_cast<Unsigned>(value); }
    static Signed narrow(Unsigned value) { return static_cast<Signed>(value); }
    static Signed lower(Signed a, Signed b) { return a < b ? a : b; }
    static Signed higher(Signed a, Signed b) { return a > b ? a : b; }
};

// Sixteen bits of sign and magnitude compare as integers, without a conversion.
template <uint16_t infinity>
struct SixteenBits {
    using Stored = uint16_t;
    using Computed = float;
    // How far a number is from the infinity that loses, as that is below zero or above. A NaN is a step farther than
    // the infinity that wins.
    static uint16_t with_nan(uint16_t distance) {
        constexpr uint16_t farthest = 2 * infinity + 1;
        return distance < farthest ? distance : farthest;
    }
    static uint16_t from_below(uint16_t bits) {
        auto positive = static_cast<uint16_t>(infinity + bits);
        auto negative = static_cast<uint16_t>(0x8000 + infinity - bits);
        return with_nan(static_cast<int16_t>(bits) < 0 ? negative : positive);
    }
    static uint16_t from_above(uint16_t bits) {
        auto positive = static_cast<uint16_t>(infinity - bits);
        auto negative = static_cast<uint16_t>(infinity - 0x8000 + bits);
        return with_nan(static_cast<int16_t>(bits) < 0 ? negative : positive);
    }
    static uint16_t lower(uint16_t a, uint16_t b) { return from_above(a) >= from_above(b) ? a : b; }
    static uint16_t higher(uint16_t a, uint16_t b) { return from_below(a) >= from_below(b) ? a : b; }
};

struct Half : SixteenBits<0x7c00> {
    static float widen(uint16_t half) {
        constexpr uint32_t exponent = 0x7c00u << 13;
        constexpr uint32_t smallest_normal = 113u << 23;
        uint32_t bits = (half & 0x7fffu) << 13;
        uint32_t kind = bits & exponent;
        bits += (127u - 15) << 23;
        bits += kind == exponent ? (128u - 16) << 23 : 0;
        // A subnormal half becomes a normal float: give it a leading one, and subtract it.
        uint32_t subnormal = bits_of(from_bits(bits + (1u << 23)) - from_bits(smallest_normal));
        bits = kind == 0 ? subnormal : bits;
        return from_bits(bits | (half & 0x8000u) << 16);
    }
    static uint16_t narrow(float value) {
        constexpr uint32_t too_large = (127u + 16) << 23;
        constexpr uint32_t smallest_normal = 113u << 23;
        constexpr uint32_t subnormal_ulp = (127u - 15 + 23 - 10 + 1) << 23;
        uint32_t sign = bits_of(value) & 0x80000000u;
        uint32_t bits = bits_of(value) ^ sign;
        uint32_t normal = (bits - ((127u - 15) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
        // Adding a number whose last place is a subnormal half's lets the processor round.
        uint32_t subnormal = bits_of(from_bits(bits) + from_bits(subnormal_ulp)) - subnormal_ulp;
        uint32_t special = bits > 0x7f800000u ? 0x7e00u | ((bits >> 13) & 0x3ff) : 0x7c00u;
        uint32_t half = bits < smallest_normal ? subnormal : normal;
        half = bits >= too_large ? special : half;
        return static_cast<uint16_t>(half | sign >> 16);
    }
};

struct Brain : SixteenBits<0x7f80> {
    static float widen(uint16_t brain) { return from_bits(static_cast<uint32_t>(brain) << 16); }
    static uint16_t narrow(float value) {
        uint32_t bits = bits_of(value);
        uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
        uint32_t nan = bits | 0x400000;
        return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded) >> 16);
    }
};

struct Sum {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return Element::narrow(Element::widen(a) + Element::widen(b));
    }
};

struct Prod {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return Element::narrow(Element::widen(a) * Element::widen(b));
    }
};

struct Min {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return Element::lower(a, b);
    }
};

struct Max {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return Element::higher(a, b);
    }
};

struct BitAnd {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return static_cast<Stored>(a & b);
    }
};

struct BitOr {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return static_cast<Stored>(a | b);
    }
};

struct BitXor {
    template <typename Element, typename Stored = typename Element::Stored>
    static Stored apply(Stored a, Stored b) {
        return static_cast<Stored>(a ^ b);
    }
};

template <typename Element, typename Operation>
void combine(void* out, const void* a, const void* b, size_t elements) {
    using Stored = typename Element::Stored;
    WEFT_INDEPENDENT
    for (size_t i = 0; i < elements; ++i) {
        store(out, i, Operation::template apply<Element>(load<Stored>(a, i), load<Stored>(b, i)));
    }
}

template <typename Element>
void divide_all(void* values, size_t elements, int64_t by) {
    using Stored = typename Element::Stored;
    auto divisor = static_cast<typename Element::Computed>(by);
    WEFT_INDEPENDENT
    for (size_t i = 0; i < elements; ++i) {
        store(values, i, Element::narrow(Element::widen(load<Stored>(values, i)) / divisor));
    }
}

// Unsigned arithmetic would divide a negative number as a large one.
template <typename Stored>
void divide_integers(void* values, size_t elements, int64_t by) {
    WEFT_INDEPENDENT
    for (size_t i = 0; i < elements; ++i) {
        store(values, i, static_cast<Stored>(static_cast<int64_t>(load<Stored>(values, i)) / by));
    }
}

template <typename Element>
constexpr TypeKernels floating_kernels{{combine<Element, Sum>, combine<Element, Sum>, combine<Element, Min>,
                                        combine<Element, Max>, combine<Element, Prod>, nullptr, nullptr, nullptr},
                                       divide_all<Element>};

template <typename Element>
constexpr TypeKernels kernels_of_integers{
    {combine<Element, Sum>, combine<Element, Sum>, combine<Element, Min>, combine<Element, Max>, combine<Element, Prod>,
     combine<Element, BitAnd>, combine<Element, BitOr>, combine<Element, BitXor>},
    divide_integers<typename Element::Stored>};

template <typename Signed, typename Unsigned>
constexpr TypeKernels integer_kernels = kernels_of_integers<Integer<Signed, Unsigned>>;

}  // namespace
}  // namespace weft::runtime
