// The `fluid` rule: flows share links max-min fair, as TCP roughly does.
//
// A connection is one source, destination and path; it carries one segment at a time. Arithmetic is float64 in one
// fixed order, so that the Python reference gets the same bits.
//
// Python half: src/weft/simulation/simulator.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <vector>

#include "common/work_limit.hpp"
#include "simulation/dependency_tracker.hpp"

namespace weft {

class FluidNetwork {
public:
    FluidNetwork(DependencyTracker& tracker, EventQueue& queue, const Network& network, const Settings& settings,
                 Outcome& outcome)
        : tracker_(tracker),
          queue_(queue),
          network_(network),
          max_time_(settings.max_time_ps),
          record_(settings.record),
          outcome_(outcome),
          work_limit_(settings.max_work),
          spare_(network.bandwidth.size(), 0.0),
          open_(network.bandwidth.size(), 0),
          on_link_(network.bandwidth.size()) {
        // A connection is known by its links, whether a route was named or is the network's own.
        std::map<std::vector<int32_t>, int32_t> first;
        for (size_t row = 0; row + 1 < network.path_offsets.size(); ++row) {
            auto links = network.path(static_cast<int32_t>(row));
            same_path_.push_back(first.try_emplace({links.begin(), links.end()}, row).first->second);
        }
    }

    void offer(int32_t segment, int64_t now) {
        Connection& connection = connect(segment);
        connection.waiting.push_back({tracker_.key(segment), segment, now});
        std::push_heap(connection.waiting.begin(), connection.waiting.end(), later);
        if (connection.active == kNone && !connection.touched) {
            connection.touched = true;
            touched_.push_back(&connection);
        }
    }

    void handle(const Event& event) {
        if (event.time < next_finish_) return;  // rates changed since this wake-up was set
        next_finish_ = kNever;
        auto done = std::stable_partition(flows_.begin(), flows_.end(),
                                          [&](const Flow& flow) { return flow.finish > event.time; });
        std::vector<Flow> finished(done, flows_.end());
        flows_.erase(done, flows_.end());
        changed_ = changed_ || !finished.empty();
        for (const Flow& flow : finished) complete(flow, event.time);
    }

    void start(int64_t now) {
        for (Connection* connection : touched_) {
            connection->touched = false;
            if (connection->active == kNone && !connection->waiting.empty()) begin(*connection, now);
        }
        touched_.clear();
        if (changed_) share(now);
        changed_ = false;
    }

private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    // Of sharing anew, measured: shares of links are kept sorted, and each flow that is settled changes some.
    static constexpr size_t kFlowWork = 30, kCrossingWork = 150;

    struct Waiting {
        uint64_t key;
        int32_t segment;
        int64_t ready;
    };
    struct Connection {
        int32_t active = kNone;
        int32_t holder = kNone;
        bool touched = false;
        std::vector<Waiting> waiting;
    };
    struct Flow {
        int32_t segment;
        std::span<const int32_t> links;
        double remaining;
        double rate;
        int64_t start, finish;
        Connection* connection;
    };

    static bool later(const Waiting& a, const Waiting& b) { return a.key > b.key; }

    std::span<const int32_t> path(int32_t segment) const { return network_.path(tracker_.segment(segment).path); }

    Connection& connect(int32_t segment) {
        return connections_[{tracker_.rank_from(segment), tracker_.rank_to(segment),
                             same_path_[tracker_.segment(segment).path]}];
    }

    void begin(Connection& connection, int64_t now) {
        std::pop_heap(connection.waiting.begin(), connection.waiting.end(), later);
        Waiting next = connection.waiting.back();
        connection.waiting.pop_back();
        if (next.ready < now && connection.holder != kNone) tracker_.blame_link(next.segment, connection.holder, now);
        connection.active = connection.holder = next.segment;
        tracker_.started(next.segment, now);
        auto bytes = static_cast<double>(tracker_.segment(next.segment).bytes);
        flows_.push_back({next.segment, path(next.segment), bytes, 0.0, now, kNever, &connection});
        changed_ = true;
    }

    void complete(const Flow& flow, int64_t now) {
        int64_t latency = 0;
        for (int32_t link : flow.links) {
            latency += network_.latency_ps[link];
            if (latency > max_time_) throw std::overflow_error("simulated time");
            outcome_.link_busy_ps[link] += duration_ps(tracker_.segment(flow.segment).bytes, network_.bandwidth[link]);
            if (record_) {
                outcome_.timeline.segment.push_back(flow.segment);
                outcome_.timeline.link.push_back(link);
                outcome_.timeline.start_ps.push_back(flow.start);
                outcome_.timeline.end_ps.push_back(now);
            }
        }
        flow.connection->active = kNone;
        if (!flow.connection->waiting.empty() && !flow.connection->touched) {
            flow.connection->touched = true;
            touched_.push_back(flow.connection);
        }
        queue_.push({now + latency, flow.segment, Kind::arrive});
        tracker_.leaves(flow.segment, now, now);
    }

    // Progressive filling. Every change of a link's share is pushed anew; entries that no longer hold are skipped.
    void share(int64_t now) {
        for (Flow& flow : flows_) {
            double moved = flow.rate * static_cast<double>(now - last_) * 1e-12;
            flow.remaining = std::max(0.0, flow.remaining - moved);
        }
        last_ = now;
        std::sort(flows_.begin(), flows_.end(), [](const Flow& a, const Flow& b) { return a.segment < b.segment; });
        used_.clear();
        size_t crossed = 0;
        for (size_t f = 0; f < flows_.size(); ++f) {
            flows_[f].rate = -1.0;
            crossed += flows_[f].links.size();
            for (int32_t link : flows_[f].links) {
                if (on_link_[link].empty()) used_.push_back(link);
                on_link_[link].push_back(static_cast<int32_t>(f));
            }
        }
        work_limit_.spend(kFlowWork * flows_.size() + kCrossingWork * crossed);
        using Share = std::pair<double, int32_t>;
        std::priority_queue<Share, std::vector<Share>, std::greater<>> shares;
        for (int32_t link : used_) {
            spare_[link] = static_cast<double>(network_.bandwidth[link]);
            open_[link] = static_cast<int32_t>(on_link_[link].size());
            shares.push({spare_[link] / open_[link], link});
        }
        while (!shares.empty()) {
            auto [rate, link] = shares.top();
            shares.pop();
            if (open_[link] == 0 || rate != spare_[link] / open_[link]) continue;
            for (int32_t f : on_link_[link]) {
                if (flows_[f].rate >= 0.0) continue;
                flows_[f].rate = rate;
                for (int32_t other : flows_[f].links) {
                    spare_[other] -= rate;
                    --open_[other];
                    if (other != link && open_[other] > 0) shares.push({spare_[other] / open_[other], other});
                }
            }
        }
        for (int32_t link : used_) on_link_[link].clear();
        next_finish_ = kNever;
        for (Flow& flow : flows_) {
            double left_ps = std::ceil(flow.remaining / flow.rate * 1e12);
            if (!(left_ps < static_cast<double>(max_time_))) throw std::overflow_error("simulated time");
            flow.finish = now + static_cast<int64_t>(left_ps);
            next_finish_ = std::min(next_finish_, flow.finish);
        }
        if (next_finish_ != kNever) queue_.push({next_finish_, 0, Kind::wake});
    }

    DependencyTracker& tracker_;
    EventQueue& queue_;
    const Network& network_;
    int64_t max_time_;
    bool record_;
    Outcome& outcome_;
    WorkLimit work_limit_;
    std::map<std::tuple<int32_t, int32_t, int32_t>, Connection> connections_;
    std::vector<int32_t> same_path_;
    std::vector<Connection*> touched_;
    std::vector<Flow> flows_;
    std::vector<double> spare_;
    std::vector<int32_t> open_;
    std::vector<std::vector<int32_t>> on_link_;
    std::vector<int32_t> used_;
    int64_t last_ = 0;
    int64_t next_finish_ = kNever;
    bool changed_ = false;
};

}  // namespace weft
