// When each transfer of a forest happens, on links that carry one chunk at a time: a timetable as short as
// possible, for which trees are grown anew in the free slots.
//
// Python half: src/weft/algorithms/forest/timetable.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "synthesis/forest.hpp"

namespace weft {

struct SlotOptions {
    std::span<const int32_t> duration;  // per link: ticks that a chunk holds it, at least 1
    std::span<const int32_t> latency;   // per link: ticks from one end to the other
    int32_t passes;                     // forward and backward ones together
    int32_t patience;                   // passes without gain that end the search
    int32_t alternatives;               // other parents that are looked at for each transfer
    int32_t good_enough;                // a timetable this short ends the search
    uint64_t seed;
};

// Start of every transfer of `trees`, in ticks; -1 where there is none.
struct Timetable {
    Trees trees;
    std::vector<int32_t> up_start, down_start;
    int32_t span;  // ticks until the last arrival
};

Timetable schedule_trees(const RankNetwork& network, Trees trees, const SlotOptions& options);

}  // namespace weft
