#include "executor.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "run.hpp"

namespace weft::runtime {

Executor::Executor(std::shared_ptr<Host> host, int channel, int32_t rank, std::vector<int32_t> job,
                   std::vector<int32_t> local, std::vector<std::vector<int32_t>> sockets, const std::vector<uint8_t>& can_read)
    : host_(std::move(host)),
      channel_(channel),
      rank_(rank),
      job_(std::move(job)),
      local_(std::move(local)),
      sockets_(std::move(sockets)),
      links_(local_.size()) {
    size_t ranks = local_.size();
    if (job_.size() != ranks || sockets_.size() != ranks || can_read.size() != ranks) throw std::invalid_argument("ranks");
    if (channel < 0 || channel >= kChannels) throw std::invalid_argument("channel");
    for (size_t r = 0; r < local_.size(); ++r) {
        if (local_[r] >= host_->ranks()) throw std::invalid_argument("local");
        if (static_cast<int32_t>(r) == rank) continue;
        for (int32_t socket : sockets_[r]) links_[r].push_back(make_tcp_link(socket));
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

Ending Executor::cut() const {
    Host::Cut cut = host_->cut();
    if (!cut.seen()) return {};
    auto number = [this](int32_t rank) {
        auto found = std::ranges::find(job_, rank);
        return found == job_.end() ? -1 : static_cast<int32_t>(found - job_.begin());
    };
    return {Status::cut, number(cut.lower), -1, number(cut.higher)};
}

void Executor::close() {
    if (!host_->is_owner()) return;
    mine().closed.store(1, std::memory_order_release);
    for (int32_t other : local_) {
        if (other >= 0) host_->ring_bell(other);
    }
}

// A rank that hears of itself takes it for news about who tells, or learns that it was too late.
Ending Executor::heard_from(int32_t peer) const {
    const Channel& there = host_->board(local_[peer]).channel[channel_];
    int64_t failed = there.failed.load(std::memory_order_acquire);
    if (failed == 0) return {};
    auto culprit = static_cast<int32_t>(failed - 1);
    auto why = static_cast<Status>(there.why.load(std::memory_order_relaxed));
    bool mine = culprit == rank_;
    if (why == Status::differs) {
        // Who told and whom it named differ from each other; the odd one is who differs from this rank.
        bool odd = there.doing.load(std::memory_order_relaxed) != this->mine().doing.load(std::memory_order_relaxed);
        return {Status::differs, mine || odd ? peer : culprit, -1, peer};
    }
    if (why == Status::timed_out || why == Status::given_up) {
        return {mine ? Status::given_up : Status::timed_out, mine ? peer : culprit, -1, mine ? peer : culprit};
    }
    return {Status::lost, mine ? peer : culprit, -1, peer};
}

int32_t Executor::follow(int32_t peer) const {
    for (size_t hops = 0; hops < local_.size(); ++hops) {
        if (peer < 0 || local_[peer] < 0) return peer;
        int32_t next = host_->board(local_[peer]).channel[channel_].waits_for.load(std::memory_order_relaxed) - 1;
        if (next < 0 || next == rank_ || next >= static_cast<int32_t>(local_.size())) return peer;
        peer = next;
    }
    return peer;
}

// Afterwards nobody writes to this rank's memory any more, but for one that froze in the midst of it.
void Executor::give_up(Status status, int32_t culprit) {
    mine().why.store(static_cast<uint32_t>(status), std::memory_order_relaxed);
    mine().failed.store(1 + culprit, std::memory_order_seq_cst);
    for (int32_t other : local_) {
        if (other >= 0) host_->ring_bell(other);
    }
    auto deadline = Clock::now() + std::chrono::seconds(1);
    for (size_t r = 0; r < links_.size(); ++r) {
        for (auto& link : links_[r]) {
            while (!link->untouched() && host_->loss(job_[r]).when_ms == 0 && Clock::now() < deadline) sched_yield();
        }
    }
}

// Who differs stays a while, so that others that come late still hear what it was in; who lost somebody goes at once.
void Executor::say_farewell(Status status) {
    auto deadline = Clock::now() + std::chrono::milliseconds(status == Status::differs ? 3000 : 100);
    auto said = [](const auto& links) {
        bool all = true;
        for (const auto& link : links) all = link->farewell() && all;
        return all;
    };
    while (!std::ranges::all_of(links_, said) && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

Ending Executor::run(const Operation& operation) {
    if (broken_.status != Status::done) return broken_;
    ++sequence_;
    Ending ending = [&]() -> Ending {
        try {
            return Run(*this, operation).go();
        } catch (const Unreadable&) {
            // The kernel knows before the watch does; give that a moment to find out who it was.
            for (int i = 0; i < 100 && loss().rank < 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return {Status::lost, loss().rank, -1, -1};
        } catch (...) {
            give_up(Status::interrupted, rank_);
            broken_ = {Status::interrupted, rank_, -1, -1};
            throw;
        }
    }();
    if (ending.status == Status::done) {
        mine().waits_for.store(0, std::memory_order_relaxed);
    } else {
        broken_ = ending;
        bool gone = ending.status == Status::lost || ending.status == Status::frozen;
        // Those of this machine are watched over better than an operation can tell.
        if (gone && ending.rank >= 0 && local_[ending.rank] < 0) {
            host_->declare(job_[ending.rank], ending.status == Status::frozen);
        }
        give_up(ending.status, ending.rank < 0 ? rank_ : ending.rank);
        say_farewell(ending.status);
    }
    return ending;
}

}  // namespace weft::runtime
