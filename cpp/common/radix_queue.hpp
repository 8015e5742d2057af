// A monotone priority queue: pops come in batches of one instant, and nothing is ever pushed into the past.
//
// A radix heap puts an event into the bucket of the highest bit in which its time differs from the last popped
// one. Each event moves down at most once per bit, whatever the number of events, so a simulation's cost grows
// linearly with them; and all events of the next instant end up together in bucket 0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace weft {

template <typename Event>  // has an int64_t `time`
class RadixQueue {
public:
    bool empty() const { return size_ == 0; }

    void push(Event event) {
        buckets_[bucket(event.time)].push_back(event);
        ++size_;
    }

    // Moves all events of the next instant into `batch`.
    void pop(std::vector<Event>& batch) {
        settle();
        batch.clear();
        batch.swap(buckets_[0]);
        size_ -= batch.size();
    }

    // The same for what has been pushed since for the instant of the last pop; false if nothing has.
    bool pop_again(std::vector<Event>& batch) {
        if (buckets_[0].empty()) return false;
        pop(batch);
        return true;
    }

private:
    size_t bucket(int64_t time) const { return std::bit_width(static_cast<uint64_t>(time ^ last_)); }

    void settle() {
        if (!buckets_[0].empty()) return;
        size_t lowest = 1;
        while (buckets_[lowest].empty()) ++lowest;
        auto& from = buckets_[lowest];
        last_ = from.front().time;
        for (const Event& event : from) last_ = event.time < last_ ? event.time : last_;
        // Every time in this bucket shares its highest bits with the new minimum: all move strictly down.
        for (const Event& event : from) buckets_[bucket(event.time)].push_back(event);
        from.clear();
    }

    std::array<std::vector<Event>, 65> buckets_;
    int64_t last_ = 0;
    size_t size_ = 0;
};

}  // namespace weft
