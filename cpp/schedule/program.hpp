// A schedule lowered to what an executor or an engine runs: segments and what each one waits for.
//
// Pieces, segments, places and the three kinds of waiting are defined in docs/simulation.md; in short, a segment
// starts when what it reads has been applied, and is applied when it has arrived, when those who still read the
// place have left, and when the write before it was applied.
//
// Python half: src/weft/simulation/simulator.py and src/weft/runtime/engines/native_engine.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/huge_pages.hpp"
#include "schedule/rows.hpp"

namespace weft {

struct Cut {
    std::span<const int64_t> chunk_bytes;
    int64_t segment_bytes;  // 0: messages stay whole
    int32_t ranks;
    int32_t slots;
    int64_t max_segments;
};

constexpr int32_t kNone = -1;

struct Segment {
    int64_t bytes;
    int32_t row;  // first row of its message
    int32_t path = kNone;  // row of the path table, or kNone when it never leaves its rank
    int32_t start_needs = 0;
    int32_t apply_needs = 0;
    int32_t when_applied = kNone;  // heads of edge lists
    int32_t when_left = kNone;
};

// Edges hang in lists on their origin; `target` is a segment, doubled, plus one when it is the target's apply
// that waits (and not its start).
struct Edge {
    uint32_t target;
    int32_t next;
};

struct Program {
    Bulk<Segment> segments;
    Bulk<Edge> edges;
    Bulk<uint32_t> index;  // of each segment in its message; empty where messages are whole

    uint32_t index_of(int32_t segment) const { return index.empty() ? 0 : index[segment]; }

    // The smallest goes first at a link: by index, then by message, and those are numbered in the order of segments.
    uint64_t key(int32_t segment) const {
        return static_cast<uint64_t>(index_of(segment)) << 32 | static_cast<uint32_t>(segment);
    }
};

// Throws TooMany if there are more segments or dependencies than the caller allows.
Program lower(const Rows& rows, const Cut& cut);

}  // namespace weft
