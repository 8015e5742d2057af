// The `queue` rule: a link serves one segment at a time, and takes the waiting one that comes first.
#pragma once

#include <algorithm>
#include <vector>

#include "clockwork.hpp"

namespace weft {

class QueueNetwork {
public:
    QueueNetwork(Clockwork& clock, EventQueue& queue, const Network& network, const Settings& settings,
                 Outcome& outcome)
        : clock_(clock),
          queue_(queue),
          network_(network),
          fifo_(settings.order == Order::fifo),
          record_(settings.record),
          outcome_(outcome),
          links_(network.bandwidth.size()) {}

    void offer(int32_t segment, int64_t now, uint32_t hop = 0) {
        int32_t link = path(segment)[hop];
        Link& server = links_[link];
        server.waiting.push_back({fifo_ ? now : 0, clock_.segment(segment).key, segment, hop, now});
        std::push_heap(server.waiting.begin(), server.waiting.end(), later);
        touch(link);
    }

    void handle(const Event& event) {
        if (event.kind == Kind::hop) {
            offer(event.id, event.time, event.hop);
        } else {
            links_[event.id].wakes = false;
            touch(event.id);
        }
    }

    void start(int64_t now) {
        for (int32_t link : touched_) {
            Link& server = links_[link];
            server.touched = false;
            if (server.waiting.empty()) continue;
            if (server.free_at <= now) serve(link, now);
            if (!server.waiting.empty() && !server.wakes) {
                server.wakes = true;
                queue_.push({server.free_at, link, Kind::link_free});
            }
        }
        touched_.clear();
    }

private:
    struct Waiting {
        int64_t since;  // 0 unless first come is first served
        uint64_t key;
        int32_t segment;
        uint32_t hop;
        int64_t ready;
    };
    struct Link {
        int64_t free_at = 0;
        int64_t bytes = -1, duration = 0;  // of the segment served last: most are alike
        int32_t holder = kNone;
        bool touched = false, wakes = false;
        std::vector<Waiting> waiting;
    };

    static bool later(const Waiting& a, const Waiting& b) {
        return a.since != b.since ? a.since > b.since : a.key > b.key;
    }

    std::span<const int32_t> path(int32_t segment) const {
        return network_.path(clock_.segment(segment).path);
    }

    int64_t duration(int32_t link, int64_t bytes) {
        Link& server = links_[link];
        if (server.bytes != bytes) {
            server.bytes = bytes;
            server.duration = duration_ps(bytes, network_.bandwidth[link]);
        }
        return server.duration;
    }

    void touch(int32_t link) {
        if (links_[link].touched) return;
        links_[link].touched = true;
        touched_.push_back(link);
    }

    void serve(int32_t link, int64_t now) {
        Link& server = links_[link];
        std::pop_heap(server.waiting.begin(), server.waiting.end(), later);
        Waiting next = server.waiting.back();
        server.waiting.pop_back();
        int32_t segment = next.segment;
        int64_t held = duration(link, clock_.segment(segment).bytes);
        if (next.ready < now && server.holder != kNone) clock_.blame_link(segment, server.holder, now);
        server.holder = segment;
        server.free_at = now + held;
        outcome_.link_busy_ps[link] += held;
        if (record_) record(segment, link, now, now + held);

        auto links = path(segment);
        if (next.hop == 0) {
            clock_.started(segment, now);
            clock_.leaves(segment, now + held, now);
        }
        int64_t head = now + network_.latency_ps[link];
        if (next.hop + 1 == links.size()) {
            queue_.push({head + held, segment, Kind::arrive});
        } else {
            // A slow feeder must not starve a fast link: that one starts late enough never to run dry.
            int64_t onward = duration(links[next.hop + 1], clock_.segment(segment).bytes);
            queue_.push({head + std::max<int64_t>(0, held - onward), segment, Kind::hop, next.hop + 1});
        }
    }

    void record(int32_t segment, int32_t link, int64_t start, int64_t end) {
        outcome_.timeline.segment.push_back(segment);
        outcome_.timeline.link.push_back(link);
        outcome_.timeline.start_ps.push_back(start);
        outcome_.timeline.end_ps.push_back(end);
    }

    Clockwork& clock_;
    EventQueue& queue_;
    const Network& network_;
    bool fifo_, record_;
    Outcome& outcome_;
    std::vector<Link> links_;
    std::vector<int32_t> touched_;
};

}  // namespace weft
