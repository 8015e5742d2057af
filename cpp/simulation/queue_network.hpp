// The `queue` rule: a link serves one segment at a time, and takes the waiting one that comes first.
// Python half: src/weft/simulation/simulator.py.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "simulation/dependency_tracker.hpp"
#include "simulation/server_queues.hpp"

namespace weft {

class QueueNetwork {
public:
    QueueNetwork(DependencyTracker& tracker, EventQueue& queue, const Network& network, const Settings& settings,
                 Outcome& outcome)
        : tracker_(tracker),
          queue_(queue),
          network_(network),
          record_(settings.record),
          outcome_(outcome),
          hops_(network.path_links.size()),
          queues_(network.bandwidth.size()),
          holder_(network.bandwidth.size(), kNone) {
        number_turns();
        for (size_t at = 0; at < hops_.size(); ++at) hops_[at] = {static_cast<uint32_t>(network.path_links[at]), 0};
        for (size_t path = 1; path < network.path_offsets.size(); ++path) {
            int64_t end = network.path_offsets[path];
            if (end > network.path_offsets[path - 1]) hops_[end - 1].last = 1;
        }
    }

    void offer(int32_t segment, int64_t now) {
        enqueue(segment, static_cast<uint32_t>(network_.path_offsets[tracker_.segment(segment).path]), true, now);
    }

    void handle(const Event& event) {
        if (event.kind == Kind::hop) {
            enqueue(event.id, event.hop, false, event.time);
        } else {
            queues_.is_free(event.id);
        }
    }

    void start(int64_t now) {
        queues_.start(
            now, [&](int32_t link, const Waiting& next) { serve(link, next, now); },
            [&](int64_t when, int32_t link) { queue_.push({when, link, Kind::link_free}); });
    }

private:
    struct Waiting {
        int64_t ready;
        uint32_t turn;  // the lower one goes first
        uint32_t place;  // in hops_, doubled, plus one at the first hop; bit fields would stall each copy

        bool is_first() const { return place & 1; }
        uint32_t at() const { return place >> 1; }

        // A type, and no function, so that heaps compare in place.
        struct Later {
            bool operator()(const Waiting& a, const Waiting& b) const { return a.turn > b.turn; }
        };
    };

    // One link of a path. Paths lie one after the other, so that a segment on its way need not look up its own.
    struct Hop {
        uint32_t link : 31;
        uint32_t last : 1;
    };

    void enqueue(int32_t segment, uint32_t at, bool is_first, int64_t now) {
        uint32_t turn = turn_.empty() ? static_cast<uint32_t>(segment) : turn_[segment];
        queues_.offer(static_cast<int32_t>(hops_[at].link), {now, turn, at << 1 | is_first});
    }

    int32_t segment_of(uint32_t turn) const {
        return segment_of_turn_.empty() ? static_cast<int32_t>(turn) : segment_of_turn_[turn];
    }

    // Segments by their keys. Where messages are whole that is the order in which they are numbered.
    void number_turns() {
        std::vector<uint32_t> next;  // by index in a message: turn of the next segment
        if (tracker_.whole()) return;
        auto index = [&](size_t segment) { return tracker_.key(static_cast<int32_t>(segment)) >> 32; };
        for (size_t segment = 0; segment < tracker_.segments(); ++segment) {
            if (index(segment) + 1 >= next.size()) next.resize(index(segment) + 2);
            ++next[index(segment) + 1];
        }
        if (next.size() <= 2) return;
        std::partial_sum(next.begin(), next.end(), next.begin());
        turn_.resize(tracker_.segments());
        segment_of_turn_.resize(tracker_.segments());
        for (size_t segment = 0; segment < turn_.size(); ++segment) {
            turn_[segment] = next[index(segment)]++;
            segment_of_turn_[turn_[segment]] = static_cast<int32_t>(segment);
        }
    }

    int64_t duration(int32_t link, int64_t bytes) { return queues_.duration(link, bytes, network_.bandwidth[link]); }

    void serve(int32_t link, const Waiting& next, int64_t now) {
        int32_t segment = segment_of(next.turn);
        int64_t held = duration(link, tracker_.segment(segment).bytes);
        if (next.ready < now && holder_[link] != kNone) tracker_.blame_link(segment, holder_[link], now);
        holder_[link] = segment;
        queues_.occupy(link, now + held);
        outcome_.link_busy_ps[link] += held;
        if (record_) record(segment, link, now, now + held);

        if (next.is_first()) {
            tracker_.started(segment, now);
            tracker_.leaves(segment, now + held, now);
        }
        int64_t head = now + network_.latency_ps[link];
        if (hops_[next.at()].last) {
            queue_.push({head + held, segment, Kind::arrive});
        } else {
            // A slow feeder must not starve a fast link: that one starts late enough never to run dry.
            uint32_t after = next.at() + 1;
            int64_t onward = duration(static_cast<int32_t>(hops_[after].link), tracker_.segment(segment).bytes);
            queue_.push({head + std::max<int64_t>(0, held - onward), segment, Kind::hop, after});
        }
    }

    void record(int32_t segment, int32_t link, int64_t start, int64_t end) {
        outcome_.timeline.segment.push_back(segment);
        outcome_.timeline.link.push_back(link);
        outcome_.timeline.start_ps.push_back(start);
        outcome_.timeline.end_ps.push_back(end);
    }

    DependencyTracker& tracker_;
    EventQueue& queue_;
    const Network& network_;
    bool record_;
    Outcome& outcome_;
    Bulk<Hop> hops_;
    Bulk<uint32_t> turn_;  // by segment; empty where it is the segment's number
    Bulk<int32_t> segment_of_turn_;
    ServerQueues<Waiting> queues_;
    std::vector<int32_t> holder_;  // by link, the segment that was served last
};

}  // namespace weft
