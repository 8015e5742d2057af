// The `queue` rule: a link serves one segment at a time, and takes the waiting one that comes first.
// Python half: src/weft/simulation/simulator.py.
#pragma once

#include <algorithm>
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
          queues_(network.bandwidth.size()),
          holder_(network.bandwidth.size(), kNone) {}

    void offer(int32_t segment, int64_t now, uint32_t hop = 0) {
        queues_.offer(path(segment)[hop], {tracker_.segment(segment).key, segment, hop, now});
    }

    void handle(const Event& event) {
        if (event.kind == Kind::hop) {
            offer(event.id, event.time, event.hop);
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
        uint64_t key;
        int32_t segment;
        uint32_t hop;
        int64_t ready;

        static bool later(const Waiting& a, const Waiting& b) { return a.key > b.key; }
    };

    std::span<const int32_t> path(int32_t segment) const { return network_.path(tracker_.segment(segment).path); }

    int64_t duration(int32_t link, int64_t bytes) { return queues_.duration(link, bytes, network_.bandwidth[link]); }

    void serve(int32_t link, const Waiting& next, int64_t now) {
        int32_t segment = next.segment;
        int64_t held = duration(link, tracker_.segment(segment).bytes);
        if (next.ready < now && holder_[link] != kNone) tracker_.blame_link(segment, holder_[link], now);
        holder_[link] = segment;
        queues_.occupy(link, now + held);
        outcome_.link_busy_ps[link] += held;
        if (record_) record(segment, link, now, now + held);

        auto links = path(segment);
        if (next.hop == 0) {
            tracker_.started(segment, now);
            tracker_.leaves(segment, now + held, now);
        }
        int64_t head = now + network_.latency_ps[link];
        if (next.hop + 1 == links.size()) {
            queue_.push({head + held, segment, Kind::arrive});
        } else {
            // A slow feeder must not starve a fast link: that one starts late enough never to run dry.
            int64_t onward = duration(links[next.hop + 1], tracker_.segment(segment).bytes);
            queue_.push({head + std::max<int64_t>(0, held - onward), segment, Kind::hop, next.hop + 1});
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
    bool fifo_, record_;
    Outcome& outcome_;
    ServerQueues<Waiting> queues_;
    std::vector<int32_t> holder_;  // by link, the segment that was served last
};

}  // namespace weft
