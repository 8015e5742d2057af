// Python half: src/weft/columns.py.
#include "schedule/row_order.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace weft {

namespace {

using Keys = std::vector<std::span<const int32_t>>;

// All keys of a row but the first in one word: comparing words is comparing rows.
class Packing {
public:
    explicit Packing(const Keys& keys) : keys_(keys) {
        for (size_t key = 1; key < keys.size(); ++key) {
            auto [least, most] = std::ranges::minmax_element(keys[key]);
            base_.push_back(*least);
            width_.push_back(std::bit_width(static_cast<uint64_t>(int64_t{*most} - *least)));
            bits_ += width_.back();
        }
    }

    int bits() const { return bits_; }

    uint64_t pack(int64_t row) const {
        uint64_t word = 0;
        for (size_t key = 1; key < keys_.size(); ++key) {
            word = word << width_[key - 1] | static_cast<uint64_t>(keys_[key][row] - base_[key - 1]);
        }
        return word;
    }

private:
    const Keys& keys_;
    int bits_ = 0;
    std::vector<int64_t> base_;
    std::vector<int> width_;
};

// Sorts ascending rows by their words; false if a word and a row's place here need more than 64 bits.
bool sort_packed(std::span<int64_t> rows, const Packing& packing, std::vector<uint64_t>& words) {
    int place_bits = std::bit_width(rows.size());
    if (packing.bits() + place_bits > 64) return false;
    words.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) words[i] = packing.pack(rows[i]) << place_bits | i;
    std::sort(words.begin(), words.end());
    uint64_t places = (uint64_t{1} << place_bits) - 1;
    for (uint64_t& word : words) word = static_cast<uint64_t>(rows[word & places]);
    std::copy(words.begin(), words.end(), rows.begin());
    return true;
}

}  // namespace

std::optional<std::vector<int64_t>> row_order(const Keys& keys) {
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
    Packing packing(keys);
    std::vector<uint64_t> words;
    for (int64_t step = 0; step < range; ++step) {
        std::span<int64_t> same(order.begin() + start[step], order.begin() + start[step + 1]);
        if (!sort_packed(same, packing, words)) std::sort(same.begin(), same.end(), before);
    }
    return order;
}

}  // namespace weft
