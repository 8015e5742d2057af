// What an operation of a rank begins and ends with, and what failures mean to it; operation_run.cpp has what is between.
// Python half: src/weft/runtime/engines/native_engine.py.
#include "runtime/executor.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/timing.hpp"

namespace weft::runtime {
namespace {

constexpr int kShieldSeconds = 8;  // longer than a silent rank takes to be declared lost
constexpr int kUnreadableLooks = 100, kUnreadableMs = 10;  // a second for the watch to see that a process is gone

}  // namespace

Executor::Executor(std::shared_ptr<Host> host, int channel, uint64_t communicator, int32_t rank,
                   std::vector<int32_t> job, std::vector<int32_t> local, std::vector<std::vector<int32_t>> sockets,
                   const std::vector<uint8_t>& can_read, const std::vector<uint8_t>& checksums)
    : host_(std::move(host)),
      channel_(channel),
      communicator_(communicator),
      rank_(rank),
      job_(std::move(job)),
      local_(std::move(local)),
      sockets_(std::move(sockets)),
      links_(local_.size()) {
    size_t ranks = local_.size();
    if (job_.size() != ranks || sockets_.size() != ranks || can_read.size() != ranks || checksums.size() != ranks)
        throw std::invalid_argument("ranks");
    if (channel < 0 || channel >= kChannels) throw std::invalid_argument("channel");
    for (size_t r = 0; r < local_.size(); ++r) {
        if (local_[r] >= host_->ranks()) throw std::invalid_argument("local");
        if (static_cast<int32_t>(r) == rank) continue;
        has_remote_ = has_remote_ || local_[r] < 0;
        for (int32_t socket : sockets_[r]) links_[r].push_back(make_tcp_link(socket, checksums[r] != 0));
        if (sockets_[r].empty() && local_[r] >= 0) {
            links_[r].push_back(make_local_link(*host_, {channel, local_[r], can_read[r] != 0}));
        }
    }
}

Executor::Loss Executor::loss() const {
    Loss first;
    int64_t when = 0;
    for (size_t r = 0; r < job_.size(); ++r) {
        Host::Loss loss = host_->loss(job_[r]);
        if (loss.when_ms == 0 || (first.rank >= 0 && loss.when_ms >= when)) continue;
        first = {static_cast<int32_t>(r), loss.frozen};
        when = loss.when_ms;
    }
    return first;
}

OperationResult Executor::cut() const {
    Host::Cut cut = host_->cut();
    if (!cut.seen()) return {};
    return {cut.corrupt != 0 ? Status::corrupt : Status::cut, number(cut.lower), -1, number(cut.higher)};
}

int32_t Executor::number(int32_t job_rank) const {
    auto found = std::ranges::find(job_, job_rank);
    return found == job_.end() ? -1 : static_cast<int32_t>(found - job_.begin());
}

Host::RankReport Executor::report_of(int32_t peer) const {
    Host::RankReport report = host_->report(job_[peer], channel_);
    return report.communicator == communicator_ ? report : Host::RankReport{};
}

void Executor::report_to_remote(Status status, int32_t other) {
    if (!has_remote_) return;
    uint64_t doing = mine().doing.load(std::memory_order_relaxed);
    int32_t blamed = other < 0 ? -1 : job_[other];
    host_->record_report({communicator_, doing, job_[rank_], blamed, channel_, static_cast<uint32_t>(status)});
}

Waiting Executor::waiting() const {
    int64_t began = began_ms_.load(std::memory_order_relaxed);
    if (began == 0) {
        std::lock_guard lock(failed_mutex_);
        return failed_;
    }
    Waiting found;
    found.seconds = static_cast<double>(now_ms() - began) / 1000;
    found.row = waiting_row_.load(std::memory_order_relaxed);
    found.rank = trace_wait(mine().waits_for.load(std::memory_order_relaxed) - 1);
    if (found.rank >= 0) found.silent_ms = host_->silent_ms(job_[found.rank]);
    return found;
}

void Executor::close() {
    if (!host_->is_owner()) return;
    mine().closed.store(1, std::memory_order_release);
    for (int32_t other : local_) {
        if (other >= 0) host_->ring_doorbell(other);
    }
}

void Executor::cancel() {
    if (!host_->is_owner()) return;
    cancelled_.store(true);
    host_->ring_doorbell(host_->rank());
}

bool Executor::has_left(int32_t peer) const {
    const Channel& there = host_->board(local_[peer]).channel[channel_];
    return there.failed.load(std::memory_order_acquire) != 0 || there.closed.load(std::memory_order_acquire) != 0;
}

int32_t Executor::given_up_by() const {
    for (size_t r = 0; r < local_.size(); ++r) {
        if (static_cast<int32_t>(r) == rank_) continue;
        OperationResult heard = reported_by(static_cast<int32_t>(r));
        if (heard.status == Status::given_up) return static_cast<int32_t>(r);
    }
    // Rank 0 of the job tells those of other machines.
    return host_->loss(job_[rank_]).when_ms != 0 ? rank_ == 0 ? 1 : 0 : -1;
}

OperationResult Executor::reported_by(int32_t peer) const {
    if (local_[peer] < 0) {
        Host::RankReport report = report_of(peer);
        auto why = static_cast<Status>(report.status);
        int32_t culprit = number(report.other);
        // Losses and cuts are told by words of their own.
        bool told =
            why == Status::differs || why == Status::timed_out || why == Status::given_up || why == Status::interrupted;
        return told && culprit >= 0 ? interpret(peer, why, culprit, report.doing, -1) : OperationResult{};
    }
    const Channel& there = host_->board(local_[peer]).channel[channel_];
    int64_t failed = there.failed.load(std::memory_order_acquire);
    if (failed == 0) return {};
    auto culprit = static_cast<int32_t>(failed - 1);
    auto why = static_cast<Status>(there.why.load(std::memory_order_relaxed));
    return interpret(peer, why, culprit, there.doing.load(std::memory_order_relaxed),
                     there.other_end.load(std::memory_order_relaxed));
}

OperationResult Executor::reported_by_remote() const {
    OperationResult first;
    for (size_t r = 0; r < local_.size() && has_remote_; ++r) {
        if (local_[r] >= 0 || static_cast<int32_t>(r) == rank_) continue;
        OperationResult heard = reported_by(static_cast<int32_t>(r));
        if (heard.status == Status::differs) return heard;
        if (first.status == Status::done) first = heard;
    }
    return first;
}

// A rank that hears of itself was frozen for long, or too slow.
OperationResult Executor::interpret(int32_t peer, Status why, int32_t culprit, uint64_t doing,
                                    int32_t other_end) const {
    bool mine = culprit == rank_;
    if (why == Status::differs) {
        // The reporting rank and the rank that it named differ; the odd one is the one that differs from this rank.
        bool odd = doing != this->mine().doing.load(std::memory_order_relaxed);
        return {Status::differs, mine || odd ? peer : culprit, -1, peer};
    }
    if (why == Status::cut || why == Status::corrupt) return {why, culprit, -1, other_end};
    if (mine) return {Status::given_up, peer, -1, peer};
    if (why == Status::timed_out || why == Status::given_up) return {Status::timed_out, culprit, -1, culprit};
    return {Status::lost, culprit, -1, peer};
}

int32_t Executor::trace_wait(int32_t peer) const {
    for (size_t hops = 0; hops < local_.size(); ++hops) {
        if (peer < 0) return peer;
        int32_t next = local_[peer] < 0
                           ? number(report_of(peer).other)
                           : host_->board(local_[peer]).channel[channel_].waits_for.load(std::memory_order_relaxed) - 1;
        if (next < 0 || next == rank_ || next >= static_cast<int32_t>(local_.size())) return peer;
        peer = next;
    }
    return peer;
}

void Executor::give_up(const OperationResult& ending, const Operation& operation) {
    mine().other_end.store(ending.waited_for, std::memory_order_relaxed);
    mine().why.store(static_cast<uint32_t>(ending.status), std::memory_order_relaxed);
    mine().failed.store(1 + (ending.rank < 0 ? rank_ : ending.rank), std::memory_order_seq_cst);
    report_to_remote(ending.status, ending.rank < 0 ? rank_ : ending.rank);
    for (int32_t other : local_) {
        if (other >= 0) host_->ring_doorbell(other);
    }
    wait_for_writers(operation);
}

// Whoever writes has seen that this rank gave up, and stops after its piece; but one that froze within a piece would go on with
// it when it thaws, and by then the memory serves something else.
void Executor::wait_for_writers(const Operation& operation) {
    auto deadline = Clock::now() + std::chrono::seconds(kShieldSeconds);
    for (size_t r = 0; r < links_.size(); ++r) {
        for (auto& link : links_[r]) {
            auto settled = [&] { return link->writing() == Writing::none || host_->loss(job_[r]).when_ms != 0; };
            while (!settled() && Clock::now() < deadline) sched_yield();
            // One that is dead writes nothing any more.
            if (link->writing() == Writing::none || (host_->loss(job_[r]).when_ms != 0 && !host_->loss(job_[r]).frozen))
                continue;
            for (int region = 0; region < kRegions; ++region) {
                if ((operation.shared >> region & 1) != 0)
                    host_->detach(operation.memory.region[region], operation.bytes[region]);
            }
            if (link->writing() == Writing::foreign) host_->fence(local_[r], link->writer());
        }
    }
}

bool Executor::was_detached(const Operation& operation) const {
    for (int region = 0; region < kRegions; ++region) {
        bool shared = (operation.shared >> region & 1) != 0;
        if (shared && host_->is_detached(operation.memory.region[region], operation.bytes[region])) return true;
    }
    return false;
}

// A rank that differs stays a while, so that late peers still learn its operation; one that lost a peer leaves at once.
void Executor::shut_down_links(Status status) {
    auto deadline = Clock::now() + std::chrono::milliseconds(status == Status::differs ? 3000 : 100);
    auto said = [](const auto& links) {
        bool all = true;
        for (const auto& link : links) all = link->shut_down() && all;
        return all;
    };
    // Every peer is told at once, however slow another is to answer.
    while (std::ranges::count_if(links_, said) < std::ssize(links_) && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

OperationResult Executor::run(const Operation& operation) {
    if (broken_.status != Status::done) return broken_;
    if (cancelled_.load()) return {Status::interrupted, rank_, -1, -1};
    ++sequence_;
    uint32_t detachments = host_->detachments();
    began_ms_.store(to_ms(operation.began), std::memory_order_relaxed);
    OperationResult ending = [&]() -> OperationResult {
        try {
            OperationResult found = carry_out(operation);
            if (found.status == Status::done && host_->detachments() != detachments && was_detached(operation)) {
                // What peers wrote to it may have gone to pages that are no longer this rank's.
                return {Status::lost, loss().rank, -1, -1};
            }
            return found;
        } catch (const Unreadable&) {
            // The kernel knows before the watch does; give that a moment to find out which rank it was. A rank that was frozen for long
            // finds others gone that have given it up before they left.
            for (int i = 0; i < kUnreadableLooks && loss().rank < 0; ++i) {
                if (int32_t other = given_up_by(); other >= 0) return {Status::given_up, other, -1, other};
                std::this_thread::sleep_for(std::chrono::milliseconds(kUnreadableMs));
            }
            return {Status::lost, loss().rank, -1, -1};
        } catch (...) {
            broken_ = {Status::interrupted, rank_, -1, -1};
            give_up(broken_, operation);
            began_ms_.store(0, std::memory_order_relaxed);
            throw;
        }
    }();
    if (ending.status != Status::done) {
        Waiting last = waiting();
        std::lock_guard lock(failed_mutex_);
        failed_ = last;
    }
    began_ms_.store(0, std::memory_order_relaxed);
    if (ending.status == Status::done) {
        mine().waits_for.store(0, std::memory_order_relaxed);
        if (std::exchange(told_waiting_for_, -1) >= 0) report_to_remote(Status::done, -1);
    } else {
        broken_ = ending;
        bool gone = ending.status == Status::lost || ending.status == Status::frozen;
        // Those of this machine are watched over better than an operation can tell.
        if (gone && ending.rank >= 0 && local_[ending.rank] < 0) {
            host_->declare(job_[ending.rank], ending.status == Status::frozen);
        }
        give_up(ending, operation);
        shut_down_links(ending.status);
    }
    return ending;
}

}  // namespace weft::runtime
