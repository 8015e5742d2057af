// Ranks of one machine: memory that they share, doorbells to wake each other, and the watch over their processes.
//
// Each rank owns one memfd, which the others map: a control page (`Board`), a ring of bytes to every other rank, and
// an arena for tensors. Only its owner writes to a board; others read it and ring its doorbell.
//
// Python half: src/weft/runtime/transport/connect.py opens it, arena_allocator.py hands out its arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/board.hpp"
#include "runtime/descriptor.hpp"

namespace weft::runtime {

class Host {
public:
    static constexpr size_t kRingBytes = size_t{2} << 20;

    // `rank` is the number among the ranks of this machine; `crowded`: there are more ranks than processors, so waiting must not spin;
    // `readable`: the others may read and write this process's private memory. Throws std::system_error.
    Host(int rank, int ranks, size_t arena_bytes, bool crowded, bool readable);
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    int descriptor() const { return file_.get(); }
    // Maps the memory of another rank, which it keeps at `file` in process `pid` with an arena of so many bytes, and begins
    // to watch it.
    void attach(int rank, int pid, int file, size_t arena_bytes);
    // Whether this process may read a word out of another one's memory; `expected` is what stands there.
    bool can_read(int rank, uint64_t address, uint64_t expected) const;
    // `rank_of[n]` is the rank in the job, of so many, of number n on this machine. A rank that is silent for
    // `suspect_after_ms` is suspected, and declared lost after `frozen_after_ms`.
    void start_watch(int64_t suspect_after_ms, int64_t frozen_after_ms, std::vector<int32_t> rank_of,
                     int32_t job_ranks);
    void close();
    // Resets a channel that its former users have left and that is not in use yet.
    void reset(int channel);

    // Whether this is the process that joined, and not one that it forked: that must not speak for it.
    bool is_owner() const;
    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    int32_t own_job_rank() const { return rank_of_.at(static_cast<size_t>(rank_)); }
    int32_t job_ranks() const { return static_cast<int32_t>(lost_.size()); }
    bool crowded() const { return crowded_; }
    int pid(int rank) const { return members_[rank].pid; }
    Board& board(int rank) const { return *reinterpret_cast<Board*>(members_[rank].memory); }
    Board& mine() const { return board(rank_); }
    std::byte* ring(int channel, int from, int to) const { return members_[from].memory + ring_offset(channel, to); }
    std::byte* arena(int rank) const { return members_[rank].memory + ring_offset(kChannels, 0); }
    std::byte* memory(int rank) const { return members_[rank].memory; }
    size_t arena_bytes() const { return arena_bytes_; }
    // Where in this rank's shared memory an address lies, if it is in the arena and so many bytes from there are still shared.
    std::optional<uint64_t> find(const std::byte* address, size_t bytes) const {
        auto offset = reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(arena(rank_));
        if (offset >= arena_bytes_ || (detachments() > 0 && is_detached(address, bytes))) return std::nullopt;
        return offset + static_cast<uint64_t>(arena(rank_) - memory(rank_));
    }

    // Puts private pages with the same content in the place of some of the arena's: what others write there from now on no
    // longer reaches this process. For memory that a rank was writing to when it froze.
    void detach(const std::byte* begin, size_t bytes);
    uint32_t detachments() const { return detachments_.load(std::memory_order_acquire); }
    bool is_detached(const std::byte* begin, size_t bytes) const;

    // Makes sure that a thread of a rank that froze does not write to this process's own memory when it thaws. That is so if
    // it was stopped at the end of its system call; else nothing but ending that process helps.
    void fence(int rank, int thread) const;

    // Wakes a rank if it sleeps or is about to. What it is to see is stored before.
    void ring_doorbell(int rank) const;
    // A rank announces that it is about to sleep, looks once more for what it waits for, and then sleeps until the doorbell
    // rings, which it may have done since the announcement, or for so long.
    uint32_t announce_sleep() const;
    void sleep(uint32_t announced, int64_t milliseconds) const;
    void retract_sleep() const;

    struct Loss {
        int64_t when_ms = 0;  // 0 while nothing is known against it
        bool frozen = false;
    };
    // Whether, and when, a rank of the job was found dead or frozen: seen here, or reported by another rank.
    Loss loss(int32_t rank) const;
    void declare(int32_t rank, bool frozen);
    // Declares the ranks of this machine that are dead now, without waiting for the watch to be given the processor.
    void find_dead();
    // Milliseconds for which a rank of the job has been silent, if it is under suspicion, else 0.
    int64_t silent_ms(int32_t rank) const;
    void suspect(int32_t rank, int64_t silent_ms);  // 0: it is heard again

    // A connection that carries nothing any more, or changes what it carries, although the ranks at both of its ends live.
    // The first that is seen ends the operation of every rank; `mend` forgets it, and what is told of it afterwards.
    struct Cut {
        int32_t lower = -1, higher = -1;  // ranks of the job
        int32_t connection = 0;
        int32_t times_mended = 0;
        int32_t corrupt = 0;
        bool seen() const { return lower >= 0; }
    };
    Cut cut() const;
    void declare_cut(int32_t one, int32_t other, int32_t connection, bool corrupt);
    void record_cut(const Cut& cut);  // from another rank; an old one is ignored
    void mend();

    // What a rank of the job last said about one of its communicators, for ranks of other machines: whom it waits for, if that
    // takes long, or why it gave up. Heartbeats carry it.
    struct RankReport {
        uint64_t communicator = 0;
        uint64_t doing = 0;  // fingerprint of the operation
        int32_t teller = -1;
        int32_t other = -1;  // the rank that it waits for or blames; -1: none
        int32_t channel = 0;
        uint32_t status = 0;  // a Status; done while it waits
    };
    void record_report(const RankReport& report);  // its ranks and its channel must be those of the job
    RankReport report(int32_t teller, int channel) const;
    // The reports that came since `seen` counted so many, by teller and channel; counts them.
    std::vector<RankReport> new_reports(std::vector<uint32_t>& seen) const;

private:
    struct Member {
        std::byte* memory = nullptr;
        size_t size = 0;
        int pid = -1;
        Descriptor pidfd;
        uint64_t beat = 0;
        int64_t heard_ms = 0;
    };
    struct Range {
        const std::byte *begin, *end;
    };
    size_t ring_offset(int channel, int to) const;
    void map(Member& member, int file, size_t arena_bytes) const;
    void watch(int64_t suspect_after_ms, int64_t frozen_after_ms);

    int rank_, ranks_;
    bool crowded_;
    size_t arena_bytes_;
    Descriptor file_;
    std::vector<Member> members_;
    std::vector<int32_t> rank_of_;
    std::vector<std::atomic<int64_t>> lost_;  // by rank of the job: when, doubled, plus one if it is only frozen
    std::vector<std::atomic<int64_t>> silent_since_;  // by rank of the job, while it is under suspicion; else 0
    mutable std::mutex detached_mutex_;
    std::vector<Range> detached_;
    std::atomic<uint32_t> detachments_ = 0;
    mutable std::mutex cut_mutex_;
    Cut cut_;
    struct CountedReport {
        RankReport report;
        uint32_t times = 0;
    };
    mutable std::mutex reports_mutex_;
    std::vector<CountedReport> reports_;  // by teller and channel
    std::thread watcher_;
    std::atomic<bool> stop_ = false;
};

}  // namespace weft::runtime
