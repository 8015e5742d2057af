// Sorting a schedule's rows.
// Python half: src/weft/columns.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace weft {

// Stable sorting permutation of rows by `keys`, the most significant first; nothing when they are in order already.
// The first key must not be negative.
std::optional<std::vector<int64_t>> row_order(const std::vector<std::span<const int32_t>>& keys);

}  // namespace weft
