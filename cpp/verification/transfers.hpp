// A schedule's table as the verifier sees it, and what several checks need of it.
// Python half: src/weft/verification (semantics.py, deadlock.py).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/huge_pages.hpp"
#include "schedule/rows.hpp"

namespace weft::verification {

constexpr int32_t kEvery = -1;  // in source and target: all ranks
constexpr uint8_t kReduce = 1;

// A place is a (rank, slot) of one chunk, as a number; chunks never meet, so the chunk is left out.
using Place = uint32_t;

struct Transfers : Rows {
    int32_t ranks;
    std::span<const int32_t> source;  // per chunk
    std::span<const int32_t> target;  // per chunk

    size_t chunks() const { return source.size(); }
    size_t places() const {
        int32_t last_slot = 0;
        for (auto column : {src_slot, dst_slot}) {
            for (int32_t slot : column) last_slot = std::max(last_slot, slot);
        }
        return (static_cast<size_t>(last_slot) + 1) * static_cast<size_t>(ranks);
    }
    Place read_place(size_t row) const { return place(src[row], from_slot(row)); }
    Place write_place(size_t row) const { return place(dst[row], to_slot(row)); }
    Place place(int32_t rank, int32_t slot) const {
        return static_cast<Place>(slot) * static_cast<Place>(ranks) + static_cast<Place>(rank);
    }
};

// Rows of each chunk, in row order and therefore in step order.
class RowsByChunk {
public:
    explicit RowsByChunk(const Transfers& table) : start_(table.chunks() + 1), order_(table.size()) {
        for (int32_t chunk : table.chunk) ++start_[chunk + 1];
        for (size_t chunk = 0; chunk < table.chunks(); ++chunk) start_[chunk + 1] += start_[chunk];
        for (size_t row = 0; row < table.size(); ++row) order_[start_[table.chunk[row]]++] = static_cast<uint32_t>(row);
        // Filling moved each start to the next chunk's.
        for (size_t chunk = table.chunks(); chunk > 0; --chunk) start_[chunk] = start_[chunk - 1];
        start_[0] = 0;
    }
    std::span<const uint32_t> rows(size_t chunk) const {
        return {order_.data() + start_[chunk], start_[chunk + 1] - start_[chunk]};
    }

private:
    std::vector<uint32_t> start_;
    Bulk<uint32_t> order_;
};

// Gives each different key a number: 0, 1, .. in the order of first sight. Emptied in no time, because the
// verifier does that once per chunk and an all-to-all has a million chunks.
class Numbering {
public:
    void clear(size_t expected = 0) {
        keys_.clear();
        if (++stamp_ == 0) {
            table_.clear();
            stamp_ = 1;
        }
        size_t size = 16;
        while (size < 2 * expected) size *= 2;
        resize(size);
    }
    uint32_t number(uint64_t key) {
        if (2 * (keys_.size() + 1) > mask_ + 1) grow();
        Entry& entry = table_[position(key)];
        if (entry.stamp != stamp_) {
            entry = {key, stamp_, static_cast<uint32_t>(keys_.size())};
            keys_.push_back(key);
        }
        return entry.number;
    }
    // The number of a key, or -1.
    int64_t find(uint64_t key) const {
        const Entry& entry = table_[position(key)];
        return entry.stamp == stamp_ ? static_cast<int64_t>(entry.number) : -1;
    }
    const std::vector<uint64_t>& keys() const { return keys_; }
    size_t size() const { return keys_.size(); }

private:
    struct Entry {
        uint64_t key = 0;
        uint32_t stamp = 0;
        uint32_t number = 0;
    };
    size_t position(uint64_t key) const {
        uint64_t mixed = key * 0x9E3779B97F4A7C15u;
        size_t at = (mixed ^ (mixed >> 32)) & mask_;
        while (table_[at].stamp == stamp_ && table_[at].key != key) at = (at + 1) & mask_;
        return at;
    }
    void resize(size_t size) {
        mask_ = size - 1;
        if (table_.size() < size) table_.resize(size);
    }
    void grow() {
        std::vector<uint64_t> keys = std::move(keys_);
        clear(2 * (keys.size() + 1));
        for (uint64_t key : keys) number(key);
    }

    std::vector<Entry> table_{16};
    std::vector<uint64_t> keys_;
    size_t mask_ = 15;
    uint32_t stamp_ = 1;
};

}  // namespace weft::verification
