// Runs one rank's script over its links; operation_run.cpp carries out the tasks of one operation.
// Python half: src/weft/runtime/engines/native_engine.py.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/link.hpp"
#include "runtime/script.hpp"
#include "runtime/shared_memory.hpp"
#include "runtime/status.hpp"

namespace weft::runtime {

struct OperationResult {
    Status status = Status::done;
    int32_t rank = -1;  // whose fault
    int32_t row = -1;   // a transfer that was waited for
    int32_t waited_for = -1;  // the rank at the other end of it
};

// What an operation waits for.
struct Waiting {
    int32_t rank = -1;      // the rank that delays all others, as far as this machine can tell
    int32_t row = -1;       // a transfer that was waited for
    double seconds = 0;     // since the operation began
    int64_t silent_ms = 0;  // nothing was heard of the rank for so long, if it is under suspicion
};

class Executor {
public:
    // `local[r]` is the number on this machine of rank r, or -1; `sockets[r]` are connected sockets to it: if there are
    // several, segments go over them in turn.
    // Communicators that share a host each have a channel of their own; `job[r]` is the rank in the job of rank r.
    // `checksums[r]`: data that goes to rank r through sockets is followed by its checksum; the same at both ends.
    // `communicator`: a number that its ranks have in common, and no communicator before had.
    Executor(std::shared_ptr<Host> host, int channel, uint64_t communicator, int32_t rank, std::vector<int32_t> job,
             std::vector<int32_t> local, std::vector<std::vector<int32_t>> sockets,
             const std::vector<uint8_t>& can_read, const std::vector<uint8_t>& checksums);

    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    OperationResult run(const Operation& operation);
    void close();  // leave on purpose
    // From any thread: the operation under way, and every later one, ends as `interrupted`.
    void cancel();
    uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
    // Called when an operation has waited for long, or for a rank that is silent; from the thread that waits.
    void on_wait(std::function<void(const Waiting&)> tell) { tell_ = std::move(tell); }
    // What the operation under way waits for, or the one that failed did; also from other threads.
    Waiting waiting() const;
    const Host& host() const { return *host_; }

private:
    class OperationRun;
    // From the first task to the last.
    OperationResult carry_out(const Operation& operation);

    // The first of its ranks that died or froze.
    struct Loss {
        int32_t rank = -1;
        bool frozen = false;
    };
    Loss loss() const;
    // The cut connection that ends the operation of every rank, if there is one.
    OperationResult cut() const;
    Channel& mine() const { return host_->mine().channel[channel_]; }
    void give_up(const OperationResult& ending, const Operation& operation);
    // Returns when no peer writes to the operation's memory any more.
    void wait_for_writers(const Operation& operation);
    // Whether part of the operation's memory was taken from the others while it was under way.
    bool was_detached(const Operation& operation) const;
    // Whether a peer of this machine has given up, or left on purpose.
    bool has_left(int32_t peer) const;
    // The first peer that has given this rank up, or -1: as far as the others know, this rank is lost.
    int32_t given_up_by() const;
    // What a peer's giving up means for this rank; done if it has not.
    OperationResult reported_by(int32_t peer) const;
    // The same of all peers on other machines: of the first that tells of a difference, else of the first.
    OperationResult reported_by_remote() const;
    OperationResult interpret(int32_t peer, Status why, int32_t culprit, uint64_t doing, int32_t other_end) const;
    // Tells the ranks of other machines which rank this one waits for, or why it gave up.
    void report_to_remote(Status status, int32_t other);
    // What a peer on another machine said last about this communicator.
    Host::RankReport report_of(int32_t peer) const;
    // Number here of a rank of the job, or -1.
    int32_t number(int32_t job_rank) const;
    // The rank that all wait for in the end, as far as is known here, if `peer` is waited for by this one.
    int32_t trace_wait(int32_t peer) const;
    void shut_down_links(Status status);

    std::shared_ptr<Host> host_;
    int channel_;
    uint64_t communicator_;
    int32_t rank_;
    std::vector<int32_t> job_, local_;
    bool has_remote_ = false;        // some of the ranks are on other machines
    int32_t told_waiting_for_ = -1;  // the rank that those were told about
    std::vector<std::vector<int32_t>> sockets_;
    std::vector<std::vector<std::unique_ptr<Link>>> links_;  // by rank and stream
    std::function<void(const Waiting&)> tell_;
    std::atomic<int32_t> waiting_row_ = -1;
    std::atomic<int64_t> began_ms_ = 0;  // 0 between operations
    mutable std::mutex failed_mutex_;
    Waiting failed_;  // what the operation that failed had waited for
    std::atomic<uint64_t> sequence_ = 0;
    std::atomic<bool> cancelled_ = false;
    OperationResult broken_;  // the first failure; after it nothing works any more
    std::shared_ptr<OperationRun> run_;  // kept for the room that it has taken
};

}  // namespace weft::runtime
