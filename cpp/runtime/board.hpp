// The control page at the start of the memory that each rank shares with the other ranks of its machine.
//
// Only its owner writes to a board, except for the doorbell, which the other ranks ring.
//
// Python half: src/weft/runtime/transport/connect.py.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::runtime {

constexpr int kRegionCount = 3;

// What a rank says to one peer about the operation they are in; two of them, so that the next can be written while the
// peer still reads the last. Two are enough: a rank completes an operation only when it has read the peer's notice of it,
// and the peer writes that when it has completed the one before, and so has read this rank's notice of that.
// A line of the cache has all that a short message needs: each line that the peer has to fetch takes longer than such a message.
struct alignas(64) Notice {
    std::atomic<uint64_t> sequence;
    uint64_t fingerprint;
    uint64_t shared;  // bit r: region r lies in the arena
    uint64_t start;   // where in the ring to the peer the operation begins...
    uint64_t head;    // ... and where what was sent ahead ends
    uint64_t address[kRegionCount];  // offset in the owner's memory, or address in its process
    uint64_t bytes[kRegionCount];    // how many there are from there on
};

// Memory of another process that a rank writes to: shared with it, or its own, through the kernel.
enum class Writing : uint32_t { none, shared, foreign };

// What a rank keeps for one peer, on one channel.
struct alignas(64) Pair {
    std::atomic<uint64_t> ready;      // tasks offered to this peer, ever
    std::atomic<uint64_t> consumed;   // tasks taken from this peer, ever
    std::atomic<uint64_t> head;       // bytes put into the ring to this peer
    std::atomic<uint64_t> tail;       // bytes taken out of the ring from this peer
    std::atomic<Writing> writing;     // this rank writes to the peer's memory just now...
    std::atomic<int32_t> writer;      // ... in this thread; stored before
    Notice notice[2];
};

constexpr int kMostLocal = 256;
constexpr int kChannels = 16;

// One for each communicator among (some of) these ranks.
struct Channel {
    alignas(64) std::atomic<int64_t> failed;  // 0, or 1 + the rank whose fault it was that this one gave up...
    std::atomic<uint32_t> why;         // ... and how it ended; written before
    std::atomic<int32_t> other_end;    // of a connection that was cut or changed data: the other of the two ranks
    std::atomic<int32_t> waits_for;    // 0, or 1 + the rank that this one waits for, or waited for when it gave up
    std::atomic<uint64_t> doing;       // fingerprint of the latest operation
    std::atomic<uint32_t> closed;  // it left on purpose, which is an error only for a rank that waits for it
    Pair peer[kMostLocal];
};

struct Board {
    std::atomic<uint64_t> layout;  // stored last by its owner: the layout of all that follows, see shared_memory.cpp
    alignas(64) std::atomic<uint32_t> doorbell;  // a futex
    std::atomic<uint32_t> sleeping;
    alignas(64) std::atomic<uint64_t> heartbeat;
    std::atomic<uint32_t> closed;  // this process has left for good
    Channel channel[kChannels];
};

}  // namespace weft::runtime
