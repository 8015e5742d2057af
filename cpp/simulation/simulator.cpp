// Python half: src/weft/simulation/simulator.py.
#include "simulation/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/work_limit.hpp"
#include "simulation/dependency_tracker.hpp"
#include "simulation/fluid_network.hpp"
#include "simulation/queue_network.hpp"

namespace weft {

namespace {

template <typename Net>
Outcome run_on(Program& program, const Rows& rows, int32_t ranks, const Network& network, const Settings& settings) {
    Outcome outcome;
    outcome.link_busy_ps.assign(network.bandwidth.size(), 0);
    EventQueue queue;
    DependencyTracker tracker(program, rows, ranks, queue);
    Net net(tracker, queue, network, settings, outcome);

    auto offer_ready = [&](int64_t now) {
        for (;;) {
            const auto& ready = tracker.take_ready();
            if (ready.empty()) break;
            for (int32_t segment : ready) {
                if (program.segments[segment].path == kNone) {  // from slot to slot of one rank
                    tracker.started(segment, now);
                    tracker.leaves(segment, now, now);
                    tracker.arrived(segment, now);
                } else {
                    net.offer(segment, now);
                }
            }
        }
    };

    offer_ready(0);
    net.start(0);
    WorkLimit work_limit;
    std::vector<Event> batch;
    while (!queue.empty()) {
        queue.pop(batch);
        int64_t now = batch.front().time;
        if (now > settings.max_time_ps) throw std::overflow_error("simulated time");
        // Everything that happens at this instant, and all that it makes happen, comes before any link starts.
        do {
            outcome.events += static_cast<int64_t>(batch.size());
            work_limit.spend(32 * batch.size());
            for (const Event& event : batch) {
                if (event.kind == Kind::arrive || event.kind == Kind::apply) {
                    tracker.handle(event);
                } else {
                    net.handle(event);
                }
            }
            offer_ready(now);
        } while (queue.pop_again(batch));
        net.start(now);
    }
    tracker.finish(outcome);
    return outcome;
}

}  // namespace

Outcome run(Program& program, const Rows& rows, int32_t ranks, const Network& network, const Settings& settings) {
    auto* runner = settings.sharing == Sharing::queue ? &run_on<QueueNetwork> : &run_on<FluidNetwork>;
    return runner(program, rows, ranks, network, settings);
}

// Up to this many pairs a plain table is smaller and faster than searching.
constexpr int64_t kDense = int64_t{1} << 26;

std::vector<int64_t> default_pairs(const Rows& rows, int32_t ranks) {
    std::vector<int64_t> pairs;
    int64_t all = static_cast<int64_t>(ranks) * ranks;
    std::vector<uint8_t> seen(all <= kDense ? all : 0, 0);
    for (size_t row = 0; row < rows.size(); ++row) {
        if (rows.route[row] >= 0 || rows.src[row] == rows.dst[row]) continue;
        int64_t pair = static_cast<int64_t>(rows.src[row]) * ranks + rows.dst[row];
        if (!seen.empty()) {
            if (seen[pair]) continue;
            seen[pair] = 1;
        }
        pairs.push_back(pair);
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

PathFinder::PathFinder(const Rows& rows, int32_t ranks, const Network& network, std::span<const int64_t> pairs,
                       int32_t explicit_routes)
    : rows_(rows), ranks_(ranks), network_(network), pairs_(pairs), explicit_routes_(explicit_routes) {
    int64_t all = static_cast<int64_t>(ranks) * ranks;
    if (all > kDense) return;
    table_.assign(all, kNone);
    for (size_t i = 0; i < pairs.size(); ++i) table_[pairs[i]] = static_cast<int32_t>(i);
}

int32_t PathFinder::path(int32_t row) const {
    if (rows_.src[row] == rows_.dst[row]) return kNone;
    int32_t route = rows_.route[row];
    if (route >= 0) return network_.path(route).empty() ? kNone : route;
    int64_t pair = static_cast<int64_t>(rows_.src[row]) * ranks_ + rows_.dst[row];
    int64_t position =
        table_.empty() ? std::lower_bound(pairs_.begin(), pairs_.end(), pair) - pairs_.begin() : table_[pair];
    return explicit_routes_ + static_cast<int32_t>(position);
}

void find_paths(Program& program, const PathFinder& finder) {
    for (Segment& segment : program.segments) segment.path = finder.path(segment.row);
}

Load measure_load(const Rows& rows, const Cut& cut, const Network& network, const PathFinder& finder) {
    auto parts = [&](int64_t bytes) {
        return bytes == 0 || cut.segment_bytes == 0 ? int64_t{bytes > 0} : (bytes - 1) / cut.segment_bytes + 1;
    };
    Load load;
    for (size_t row = 0; row < rows.size();) {
        auto head = static_cast<int32_t>(row);
        int64_t bytes = 0;
        do {
            bytes += cut.chunk_bytes[rows.chunk[row]];
            load.pieces += static_cast<double>(parts(cut.chunk_bytes[rows.chunk[row]]));
            ++row;
        } while (row < rows.size() && rows.continues(row));
        auto segments = static_cast<double>(parts(bytes));
        int32_t path = finder.path(head);
        load.segments += segments;
        if (path != kNone) load.crossings += segments * static_cast<double>(network.path(path).size());
    }
    return load;
}

}  // namespace weft
