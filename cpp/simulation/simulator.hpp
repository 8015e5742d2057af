// The discrete-event engine: segments over links, in whole picoseconds.
//
// The rules are written down in docs/simulation.md, and tests/support/reference/schedule_engine.py is the same thing in
// readable Python; a property test holds the two together to the picosecond.
//
// Python half: src/weft/simulation/simulator.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/program.hpp"

namespace weft {

enum class Sharing : uint8_t { queue, fluid };

struct Network {
    std::span<const int64_t> bandwidth;  // bytes per second, per link
    std::span<const int64_t> latency_ps;  // per link
    std::span<const int64_t> path_offsets;
    std::span<const int32_t> path_links;

    std::span<const int32_t> path(int32_t row) const {
        return path_links.subspan(path_offsets[row], path_offsets[row + 1] - path_offsets[row]);
    }
};

struct Settings {
    Sharing sharing;
    bool record;
    int64_t max_time_ps;
    double max_work;  // in the units of WorkLimit; bounds what cannot be told beforehand
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

// Which path each row takes: its explicit route, or `explicit_routes` + position of its pair in `pairs`; none if it
// crosses no link, within a rank or by an empty route.
class PathFinder {
public:
    PathFinder(const Rows& rows, int32_t ranks, const Network& network, std::span<const int64_t> pairs,
               int32_t explicit_routes);

    int32_t path(int32_t row) const;

private:
    const Rows& rows_;
    int32_t ranks_;
    const Network& network_;
    std::span<const int64_t> pairs_;
    int32_t explicit_routes_;
    std::vector<int32_t> table_;  // by pair; empty where that would be too large
};

// Gives each segment the path of its message.
void find_paths(Program& program, const PathFinder& finder);

// How much there is to do, all rows together. Numbers that may be larger than any integer.
struct Load {
    double pieces = 0;
    double segments = 0;  // a segment too few for each message whose pieces do not fill theirs
    double crossings = 0;  // of links, by segments
};

Load measure_load(const Rows& rows, const Cut& cut, const Network& network, const PathFinder& finder);

}  // namespace weft
