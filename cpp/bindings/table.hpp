// A schedule's columns on their way from Python, for bindings only.
#pragma once

#include <optional>

#include "bindings/arrays.hpp"
#include "schedule/rows.hpp"

namespace weft {

// Keeps the arrays alive for as long as spans point into them.
struct Table {
    In<int32_t> step, chunk, src, dst;
    In<uint8_t> op;
    In<int32_t> route;
    std::optional<In<int32_t>> src_slot, dst_slot;

    Rows rows() const {
        return {view(step),
                view(chunk),
                view(src),
                view(dst),
                view(op),
                view(route),
                src_slot ? view(*src_slot) : std::span<const int32_t>{},
                dst_slot ? view(*dst_slot) : std::span<const int32_t>{}};
    }
};

}  // namespace weft
