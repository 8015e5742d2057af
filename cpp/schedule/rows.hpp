// The transfer columns of a schedule, as everything in C++ sees them.
// Python half: src/weft/schedule/ir.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

struct Rows {
    std::span<const int32_t> step, chunk, src, dst;
    std::span<const uint8_t> op;
    std::span<const int32_t> route;
    std::span<const int32_t> src_slot, dst_slot;  // empty: slot 0 everywhere

    size_t size() const { return step.size(); }
    int32_t from_slot(size_t row) const { return src_slot.empty() ? 0 : src_slot[row]; }
    int32_t to_slot(size_t row) const { return dst_slot.empty() ? 0 : dst_slot[row]; }

    // Whether `row` goes on with the message of the row before it.
    bool continues(size_t row) const {
        return row > 0 && chunk[row] == chunk[row - 1] + 1 && src[row] == src[row - 1] && dst[row] == dst[row - 1] &&
               step[row] == step[row - 1] && op[row] == op[row - 1] && route[row] == route[row - 1] &&
               from_slot(row) == from_slot(row - 1) && to_slot(row) == to_slot(row - 1);
    }
};

}  // namespace weft
