#include "engine.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "clockwork.hpp"
#include "fluid.hpp"
#include "patience.hpp"
#include "queueing.hpp"

namespace weft {

namespace {

template <typename Net>
Outcome run_on(Program& program, const Rows& rows, int32_t ranks, const Network& network,
               const Settings& settings) {
    Outcome outcome;
    outcome.link_busy_ps.assign(network.bandwidth.size(), 0);
    EventQueue queue;
    Clockwork clock(program, rows, ranks, settings, queue);
    Net net(clock, queue, network, settings, outcome);

    auto offer_ready = [&](int64_t now) {
        for (;;) {
            const auto& ready = clock.take_ready();
            if (ready.empty()) break;
            for (int32_t segment : ready) {
                if (program.segments[segment].path == kNone) {  // from slot to slot of one rank
                    clock.started(segment, now);
                    clock.leaves(segment, now, now);
                    clock.arrived(segment, now);
                } else {
                    net.offer(segment, now);
                }
            }
        }
    };

    offer_ready(0);
    net.start(0);
    Patience patience;
    std::vector<Event> batch;
    while (!queue.empty()) {
        queue.pop(batch);
        int64_t now = batch.front().time;
        if (now > settings.max_time_ps) throw std::overflow_error("simulated time");
        // Everything that happens at this instant, and all that it makes happen, comes before any link starts.
        do {
            outcome.events += static_cast<int64_t>(batch.size());
            patience.spend(32 * batch.size());
            for (const Event& event : batch) {
                if (event.kind == Kind::arrive || event.kind == Kind::apply || event.kind == Kind::left) {
                    clock.handle(event);
                } else {
                    net.handle(event);
                }
            }
            offer_ready(now);
        } while (queue.pop_again(batch));
        net.start(now);
    }
    clock.finish(outcome);
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

void find_paths(Program& program, const Rows& rows, int32_t ranks, const Network& network,
                std::span<const int64_t> pairs, int32_t explicit_routes) {
    int64_t all = static_cast<int64_t>(ranks) * ranks;
    std::vector<int32_t> table(all <= kDense ? all : 0, kNone);
    if (!table.empty()) {
        for (size_t i = 0; i < pairs.size(); ++i) table[pairs[i]] = static_cast<int32_t>(i);
    }
    for (Segment& segment : program.segments) {
        int32_t row = segment.row;
        if (rows.src[row] == rows.dst[row]) continue;
        if (rows.route[row] >= 0) {
            if (!network.path(rows.route[row]).empty()) segment.path = rows.route[row];
        } else {
            int64_t pair = static_cast<int64_t>(rows.src[row]) * ranks + rows.dst[row];
            int64_t position = table.empty() ? std::lower_bound(pairs.begin(), pairs.end(), pair) - pairs.begin()
                                             : table[pair];
            segment.path = explicit_routes + static_cast<int32_t>(position);
        }
    }
}

}  // namespace weft
