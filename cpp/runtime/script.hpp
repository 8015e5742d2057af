// The part of one rank in one collective: the segments that it sends and receives, and the order in which they wait.
//
// All waiting is local. A send waits for what was applied here before; an apply waits for reads of the place that
// have to go first and for the write before it. `weft::lower` derives that once for engine and runtime alike; this
// keeps the part that concerns one rank.
//
// Shared memory carries the segments of two ranks in row order. That alone rules out deadlock: by induction over the rows,
// whatever a segment waits for belongs to an earlier one, but for reads of the same step. A segment that waits for such
// a read, or for a write of the same step that does, is staged: taken off the connection first, applied later.
//
// A socket carries whatever is ready, and takes turns as the simulator's connections do: the first segments of all messages
// come before the second ones, so that the steps behind a long message begin while it is under way. Its receiver takes everything as it comes, and stages what cannot be applied yet, so
// that nothing waits for a connection.
//
// Usually the receiver fetches: it alone knows when the place is free. But where all that the place waits for is the
// sender's own fetching out of it, as when results go back to the ranks that gave the parts, the sender knows as well, and
// can write the result while it still has it in its cache. That makes the sender do the copying, so it is done only
// where all ranks send alike.
//
// Where a result may lie elsewhere than its input, nothing is copied first: a rank reads the input as long as a place was not
// written to, the first sum there adds to the input and goes to the output, and everything after that is in the output. Both
// may be the same memory, so that ranks that reduce in place run the same script as others.
//
// Python half: src/weft/runtime/engines/native_engine.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "schedule/program.hpp"
#include "schedule/rows.hpp"

namespace weft::runtime {

// Where a value lives at a rank.
enum class Region : uint8_t { buffer, output, scratch };
constexpr int kRegions = 3;

// Where each rank keeps each chunk; the same on all ranks, so that one can read another's memory.
struct Layout {
    std::span<const int64_t> start;  // of each chunk in the buffer, in elements; one more entry for the end
    int32_t ranks;
    bool pairs;  // all_to_all: chunk s * ranks + d lies in s's buffer and d's output
    bool elsewhere = false;  // results go to the output, and the buffer stays as it is
    std::span<const int64_t> output_start;  // by rank, the first element that the output has; empty: it has all

    struct Place {
        Region region;
        int64_t offset;
    };
    Place find(int32_t rank, int32_t chunk, int32_t slot) const;
    int64_t scratch_elements(int32_t slots) const;
};

// A run of elements of a segment that is contiguous at both ends.
struct Part {
    int64_t here, there;  // elements into the regions
    int64_t elements;
    Region here_in, there_in;
    Region base_in;  // where what a sum adds to lies
    int64_t base;
};

struct Task {
    int32_t peer;
    int32_t row;  // first row of its message, for messages to people
    uint32_t first_part, parts;
    int64_t elements;
    int32_t start_needs, apply_needs;  // how many others it waits for, to be read here and to be written here
    int32_t applied, left;  // heads of lists of waiting tasks
    int64_t stage;  // offset in the staging area, in elements, or -1 if it is applied straight away
    bool sends, reduces;
    bool pushed;  // the sender may write it straight to the receiver's memory, without asking
    int32_t queue = kNone;  // its place in `sends` or `receives`...
    uint32_t number = 0;  // ... and in the tasks of that queue, which both ends count alike
    uint32_t turn = 0;  // its place in the turns of that queue
};

struct Waiter {
    int32_t task, next;
    bool apply;  // and not start
};

// How many elements of each region are used.
struct Reach {
    int64_t elements[kRegions] = {};

    void extend(Region region, int64_t end) {
        int64_t& reached = elements[static_cast<int>(region)];
        reached = std::max(reached, end);
    }
};

struct Script {
    std::vector<Task> tasks;
    std::vector<Part> parts;
    std::vector<Waiter> waiters;
    struct Queue {
        int32_t peer, connection;
        std::vector<int32_t> tasks;  // in row order
        std::vector<int32_t> turns;  // the same: the first segments of all messages in row order, then the second ones
    };
    std::vector<Queue> sends, receives;
    std::vector<int32_t> local;  // from slot to slot of this rank
    int64_t scratch_elements = 0, stage_elements = 0;
    Reach reach;  // of the parts, into the regions of this rank
    // Of what this rank fetches from a peer or writes to it, into the peer's regions.
    std::map<int32_t, Reach> peer_reach;
    uint64_t exposed = 0;  // bit r: peers may read region r, or write to it
    // No rank ends without something from every other, so that nobody ends where one rank is in another operation, even if
    // data is sent before all peers have met.
    bool needs_all = false;
    std::map<int32_t, uint64_t> between;  // what only this rank and a peer have to agree on; nothing in a collective
};

// The connections to each rank, and which of them a message takes; both ends agree on it.
struct ConnectionChoice {
    static constexpr int32_t kInTurn = -1;
    std::span<const int32_t> count;  // to each rank
    std::span<const int32_t> out, in;  // of messages to and from each rank that go the network's own way
    std::span<const int32_t> of_route;  // of messages that a route was made for
};

// `cut` counts elements, not bytes.
Script write_script(const Rows& rows, const Cut& cut, const Layout& layout, const ConnectionChoice& connections,
                    int32_t rank);

// How many elements go to a peer, out of the buffer, and come from it, into the output; -1: none do. They lie from
// element `here` on at this rank and from `there` on at the peer. Both ends have the same code.
struct PeerExchange {
    int32_t peer;
    int64_t sends, receives, here, there;
    uint64_t code;
};
Script write_exchange(std::span<const PeerExchange> exchanges, int64_t segment, std::span<const int32_t> connections);

}  // namespace weft::runtime
