// The kernels of float16 and bfloat16 with 512-bit vectors. Compiled with -mavx512bw -mavx512vl.
// Python half: src/weft/runtime/buffers.py.
#include "runtime/kernels_vectors.hpp"

namespace weft::runtime {

constinit const TypeKernels avx512_halves = vector_kernels<Half, HalfVector>;
constinit const TypeKernels avx512_brains = vector_kernels<Brain, BrainVector>;

}  // namespace weft::runtime
