// Ranks of one machine: memory that they share, bells to wake each other, and the watch over who is still alive.
//
// Each rank owns one memfd, which the others map: a control page (`Board`), a ring of bytes to every other rank, and
// an arena for tensors. Only its owner writes to a board; others read it and ring its bell.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace weft::runtime {

constexpr int kRegionCount = 3;

// What a rank says to one peer about the operation they are in; two of them, so that the next can be written while the
// peer still reads the last.
struct Notice {
    std::atomic<uint64_t> sequence;
    uint64_t fingerprint;
    uint64_t shared;                 // bit r: region r lies in the arena
    uint64_t address[kRegionCount];  // offset in the owner's memory, or address in its process
};

// What a rank keeps for one peer, on one channel.
struct alignas(64) Pair {
    std::atomic<uint64_t> ready;      // tasks offered to this peer, ever
    std::atomic<uint64_t> consumed;   // tasks taken from this peer, ever
    std::atomic<uint64_t> head;       // bytes put into the ring to this peer
    std::atomic<uint64_t> tail;       // bytes taken out of the ring from this peer
    std::atomic<uint64_t> met;        // the latest operation whose notice this rank has read at the peer
    std::atomic<uint32_t> pushing;    // this rank writes to the peer's memory just now
    alignas(64) Notice notice[2];
};

constexpr int kMostLocal = 256;
constexpr int kChannels = 16;

// One for each communicator among (some of) these ranks.
struct Channel {
    alignas(64) std::atomic<int64_t> failed;  // 0, or 1 + the rank whose fault it was that this one gave up...
    std::atomic<uint32_t> why;         // ... and how it ended; written before
    std::atomic<int32_t> waits_for;    // 0, or 1 + the rank that this one waits for, or waited for when it gave up
    std::atomic<uint64_t> doing;       // fingerprint of the latest operation
    std::atomic<uint32_t> closed;  // it left on purpose: no reason to worry unless somebody waits for it
    Pair peer[kMostLocal];
};

struct Board {
    std::atomic<uint64_t> magic;
    alignas(64) std::atomic<uint32_t> bell;  // a futex
    std::atomic<uint32_t> sleeping;
    alignas(64) std::atomic<uint64_t> heartbeat;
    std::atomic<uint32_t> closed;  // this process has left for good
    Channel channel[kChannels];
};

class Host {
public:
    static constexpr size_t kRingBytes = size_t{2} << 20;

    // `rank` is the number among the ranks of this machine; `crowded`: who waits takes the processor from who works.
    // Throws std::system_error.
    Host(int rank, int ranks, size_t arena_bytes, bool crowded);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    int descriptor() const { return file_; }
    // Maps the memory of another rank, which it keeps at `file` in process `pid`, and begins to watch it.
    void attach(int rank, int pid, int file);
    // Whether this process may read a word out of another one's memory; `expected` is what stands there.
    bool can_read(int rank, uint64_t address, uint64_t expected) const;
    // `rank_of[n]` is the rank in the job, of so many, of number n on this machine.
    void start_watch(int64_t frozen_after_ms, std::vector<int32_t> rank_of, int32_t job_ranks);
    void close();
    // Makes a channel as new; those who used it before have left it, and no one uses it yet.
    void reset(int channel);

    // Whether this is the process that joined, and not one that it forked: that must not speak for it.
    bool is_owner() const;
    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    bool crowded() const { return crowded_; }
    int pid(int rank) const { return members_[rank].pid; }
    Board& board(int rank) const { return *reinterpret_cast<Board*>(members_[rank].memory); }
    Board& mine() const { return board(rank_); }
    std::byte* ring(int channel, int from, int to) const { return members_[from].memory + ring_offset(channel, to); }
    std::byte* arena(int rank) const { return members_[rank].memory + ring_offset(kChannels, 0); }
    std::byte* memory(int rank) const { return members_[rank].memory; }
    size_t arena_bytes() const { return arena_bytes_; }
    // Where in this rank's shared memory an address lies, if it is in the arena.
    std::optional<uint64_t> find(const std::byte* address) const {
        auto offset = reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(arena(rank_));
        if (offset >= arena_bytes_) return std::nullopt;
        return offset + static_cast<uint64_t>(arena(rank_) - memory(rank_));
    }
    size_t size() const { return ring_offset(kChannels, 0) + arena_bytes_; }

    void ring_bell(int rank) const;
    void sleep(uint32_t heard, int64_t milliseconds) const;  // until somebody rings, or so long

    struct Loss {
        int64_t when_ms = 0;  // 0 while nothing is known against it
        bool frozen = false;
    };
    // Whether, and when, a rank of the job was found dead or frozen: seen here, or declared by who saw it elsewhere.
    Loss loss(int32_t rank) const;
    void declare(int32_t rank, bool frozen);

    // A connection that carries nothing any more although the ranks at both of its ends live. The first that is seen
    // ends everybody's operation; `mend` forgets it, and what is told of it afterwards.
    struct Cut {
        int32_t lower = -1, higher = -1;  // ranks of the job
        int32_t lane = 0;
        int32_t times_mended = 0;
        bool seen() const { return lower >= 0; }
    };
    Cut cut() const;
    void declare_cut(int32_t one, int32_t other, int32_t lane);
    void hear_of_cut(const Cut& cut);  // from another rank; an old one is ignored
    void mend();

private:
    struct Member {
        std::byte* memory = nullptr;
        int pid = -1, pidfd = -1;
        uint64_t beat = 0;
        int64_t heard_ms = 0;
    };
    size_t ring_offset(int channel, int to) const;
    void watch(int64_t frozen_after_ms);

    int rank_, ranks_;
    bool crowded_;
    size_t arena_bytes_;
    int file_ = -1;
    std::vector<Member> members_;
    std::vector<int32_t> rank_of_;
    std::vector<std::atomic<int64_t>> lost_;  // by rank of the job: when, doubled, plus one if it is only frozen
    mutable std::mutex cut_mutex_;
    Cut cut_;
    std::thread watcher_;
    std::atomic<bool> stop_ = false;
};

}  // namespace weft::runtime
