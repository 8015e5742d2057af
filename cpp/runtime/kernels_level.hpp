// One instruction set: its name and a function for every element type and operation.
// Python half: src/weft/runtime/buffers.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::runtime {

using Combine = void (*)(void* out, const void* a, const void* b, size_t elements);
using Divide = void (*)(void* values, size_t elements, int64_t by);

// Null where the type has no such operation.
struct TypeKernels {
    Combine combine[8];  // by ReduceOp
    Divide divide;
};

struct Level {
    const char* name;
    TypeKernels types[9];  // by DType
};

extern const Level plain_level;
#ifdef WEFT_KERNELS_X86
extern const Level avx2_level;
// Types computed in another one are bound by instructions; all others wait for memory, with those of avx2 as well.
extern const TypeKernels avx512_halves, avx512_brains;
#endif

}  // namespace weft::runtime
