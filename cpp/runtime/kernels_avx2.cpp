// The kernels with 256-bit vectors and the processor's own half conversions. Compiled with -mavx2 -mf16c.
// Python half: src/weft/runtime/buffers.py.
#include "runtime/kernels_vectors.hpp"

namespace weft::runtime {

constinit const Level avx2_level{
    "avx2",
    {vector_kernels<Half, HalfVector>, vector_kernels<Brain, BrainVector>, floating_kernels<Direct<float>>,
     floating_kernels<Direct<double>>, integer_kernels<int32_t, uint32_t>, integer_kernels<int64_t, uint64_t>,
     integer_kernels<int16_t, uint32_t>, integer_kernels<int8_t, uint32_t>, integer_kernels<uint8_t, uint32_t>}};

}  // namespace weft::runtime
