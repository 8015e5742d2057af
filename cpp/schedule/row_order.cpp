// Python half: src/weft/columns.py.
#include "schedule/row_order.hpp"

#include <algorithm>
#include <numeric>

namespace weft {

std::optional<std::vector<int64_t>> row_order(const std::vector<std::span<const int32_t>>& keys) {
    auto before = [&](int64_t a, int64_t b) {
        for (const auto& key : keys) {
            if (key[a] != key[b]) return key[a] < key[b];
        }
        return a < b;
    };
    auto rows = static_cast<int64_t>(keys.front().size());
    int64_t row = 1;
    while (row < rows && before(row - 1, row)) ++row;
    if (row >= rows) return std::nullopt;

    std::vector<int64_t> order(rows);
    auto first = keys.front();
    auto [least, most] = std::ranges::minmax_element(first);
    int64_t base = *least, range = *most - base + 1;
    if (range > 4 * rows) {  // sparse steps: no point in counting
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), before);
        return order;
    }
    // By step in linear time, then each step by itself: it fits into the cache, and comparing is cheap there.
    std::vector<int64_t> start(range + 1, 0);
    for (int32_t step : first) ++start[step - base + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < rows; ++i) order[next[first[i] - base]++] = i;
    for (int64_t step = 0; step < range; ++step) {
        std::sort(order.begin() + start[step], order.begin() + start[step + 1], before);
    }
    return order;
}

}  // namespace weft
