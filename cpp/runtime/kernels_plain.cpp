// The kernels as any processor runs them.
// Python half: src/weft/runtime/buffers.py.
#include "runtime/kernels_operators.hpp"

namespace weft::runtime {

constinit const Level plain_level{
    "plain",
    {floating_kernels<Half>, floating_kernels<Brain>, floating_kernels<Direct<float>>, floating_kernels<Direct<double>>,
     integer_kernels<int32_t, uint32_t>, integer_kernels<int64_t, uint64_t>, integer_kernels<int16_t, uint32_t>,
     integer_kernels<int8_t, uint32_t>, integer_kernels<uint8_t, uint32_t>}};

}  // namespace weft::runtime
