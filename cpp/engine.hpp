// The discrete-event engine: segments over links, in whole picoseconds.
//
// The rules are written down in docs/simulation.md, and src/weft/simulation/reference.py is the same thing in
// readable Python; a property test holds the two together to the picosecond.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program.hpp"

namespace weft {

enum class Sharing : uint8_t { queue, fluid };
enum class Order : uint8_t { priority, fifo };
enum class Execution : uint8_t { dependency, global, strict };

struct Network {
    std::span<const int64_t> bandwidth;   // bytes per second, per link
    std::span<const int64_t> latency_ps;  // per link
    std::span<const int64_t> path_offsets;
    std::span<const int32_t> path_links;

    std::span<const int32_t> path(int32_t row) const {
        return path_links.subspan(path_offsets[row], path_offsets[row + 1] - path_offsets[row]);
    }
};

struct Settings {
    Sharing sharing;
    Order order;
    Execution execution;
    bool record;
    int64_t max_time_ps;
};

enum class Waited : uint8_t { start, dependency, link };

// One stretch of the critical path, last first.
struct PathStep {
    int32_t segment;
    Waited waited;
    int64_t start_ps, end_ps;
};

struct Timeline {
    std::vector<int32_t> segment, link;
    std::vector<int64_t> start_ps, end_ps;
};

struct Outcome {
    int64_t time_ps = 0;
    std::vector<int64_t> link_busy_ps;
    std::vector<int64_t> rank_finish_ps;
    std::vector<PathStep> critical_path;
    Timeline timeline;
    int64_t events = 0;
    int32_t stuck = kNone;  // a segment that never finished
};

// The program's counters are used up.
Outcome run(Program& program, const Rows& rows, int32_t ranks, const Network& network, const Settings& settings);

// Sorted, distinct src * ranks + dst of the rows that take the network's own path.
std::vector<int64_t> default_pairs(const Rows& rows, int32_t ranks);

// Gives each segment its path: its explicit route, or `explicit_routes` + position of its pair in `pairs`. One that
// crosses no link, within a rank or by an empty route, keeps none.
void find_paths(Program& program, const Rows& rows, int32_t ranks, const Network& network,
                std::span<const int64_t> pairs, int32_t explicit_routes);

}  // namespace weft
