// Many collectives and other work at once: a graph of tasks that every rank carries out, on one network.
//
// The rules are written down in docs/workflow.md, and tests/support/reference/workflow_engine.py is the same thing in
// readable Python; a property test holds the two together to the picosecond.
//
// Python half: src/weft/simulation/workflow.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/program.hpp"
#include "simulation/simulator.hpp"

namespace weft {

// A resource on the way of a segment, and how many bytes pass it for each byte of the segment.
struct Hop {
    int32_t resource;
    int32_t numerator, denominator;
};

// Resources of the sender or of the receiver that a segment passes besides links: of rank r, number `first` + r.
struct EndpointHop {
    int32_t first;
    int32_t copy_numerator, reduce_numerator, denominator;
};

// A collective, lowered once and carried out by any number of tasks. Its steps are cut into parts, and a rank enters
// one part after the other.
struct Pattern {
    Program program;
    std::vector<int32_t> src, dst, part;  // by segment
    std::vector<int64_t> hop_start;       // by segment, and the end
    std::vector<Hop> hops;
    int32_t parts = 1;
    // By part * ranks + rank, and the end: what the rank sends and what it receives there.
    std::vector<int64_t> sends_start, receives_start;
    std::vector<int32_t> sends, receives;

    std::span<const Hop> path(int32_t segment) const {
        return {hops.data() + hop_start[segment], static_cast<size_t>(hop_start[segment + 1] - hop_start[segment])};
    }
    std::span<const int32_t> sent(int32_t in_part, int32_t ranks, int32_t rank) const {
        return slice(sends_start, sends, in_part * static_cast<int64_t>(ranks) + rank);
    }
    std::span<const int32_t> received(int32_t in_part, int32_t ranks, int32_t rank) const {
        return slice(receives_start, receives, in_part * static_cast<int64_t>(ranks) + rank);
    }

private:
    static std::span<const int32_t> slice(const std::vector<int64_t>& start, const std::vector<int32_t>& all,
                                          int64_t place) {
        return {all.data() + start[place], static_cast<size_t>(start[place + 1] - start[place])};
    }
};

Pattern make_pattern(const Rows& rows, const Cut& cut, const Network& network, std::span<const int64_t> pairs,
                     int32_t explicit_routes, std::span<const int32_t> part_of_step,
                     std::span<const EndpointHop> before, std::span<const EndpointHop> after);

// What a rank does in one stage of a task: a part of a pattern; or `amount[rank]` bytes on a resource of its own; or,
// with neither, a pause of so many picoseconds.
struct Stage {
    int32_t pattern = kNone, part = 0;
    int32_t first_resource = kNone;  // of rank r, number `first_resource` + r
    int64_t amounts = 0;             // where its amounts begin
    int32_t pool = kNone;            // a token of this is held until the next one is, or the end
};

struct WorkflowTask {
    int64_t priority = 0;
    int32_t first_stage = 0, last_stage = 0;  // one past the last
    int32_t pool = kNone;                     // a token of this is held all the time
    int32_t pattern = kNone;                  // that of its stages: at most one
    int64_t first_after = 0, last_after = 0;  // tasks that wait for it
    int32_t needs = 0;
    uint64_t pools = 0;  // one bit for each that it takes from
};

struct WorkflowInput {
    int32_t ranks;
    std::span<const int64_t> rate, latency_ps;  // by resource
    std::span<const int32_t> capacity;          // by pool, tokens that each rank has
    std::vector<const Pattern*> patterns;
    std::vector<Stage> stages;
    std::vector<WorkflowTask> tasks;
    std::vector<int32_t> followers;
    std::span<const int64_t> amounts;
};

struct WorkflowOutcome {
    std::vector<int64_t> began_ps, ended_ps;  // by task * ranks + rank; -1 if never
    std::vector<int64_t> busy_ps;             // by resource
    std::vector<int32_t> span_task, span_segment, span_resource;  // if recorded; segment -1 is work of a rank
    std::vector<int64_t> span_start_ps, span_end_ps;
    int64_t time_ps = 0, events = 0, segments = 0;
    int32_t stuck_task = kNone, stuck_rank = kNone, stuck_pool = kNone;
};

WorkflowOutcome run_workflow(const WorkflowInput& input, bool record, int64_t max_segments, int64_t max_time_ps);

}  // namespace weft
