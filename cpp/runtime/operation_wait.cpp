// How an operation waits, and what it does when nothing comes: it sleeps, names the rank that is waited for, and finds out why.
// Python half: src/weft/runtime/engines/native_engine.py.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "common/work_limit.hpp"
#include "runtime/operation_run.hpp"

namespace weft::runtime {
namespace {

constexpr int kVerdictMs = 500;
constexpr int64_t kSpins = 2000, kYields = 20, kCrowdedYields = 20;
constexpr int64_t kSocketYields = 2;  // the kernel has nothing to tell until the peer gets to run
constexpr int kSleepMs = 20;
constexpr int kLookMs = 250;  // from one look at what the kernel knows to the next
constexpr std::chrono::milliseconds kTellWait{500};  // until the ranks of other machines are told of a wait

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

// Nothing to do: spin a little, let others run, and at last sleep until the doorbell rings.
OperationResult Executor::OperationRun::rest() {
    if (++idle_ == 1) wake();
    Host& host = *owner_.host_;
    bool eager = may_spin();
    int64_t spins = eager ? kSpins : 0;
    int64_t yields = eager ? kYields : sockets_ ? kSocketYields : kCrowdedYields;
    if (idle_ < spins) {
        pause();
        return {};
    }
    if (idle_ < spins + yields) {
        sched_yield();
        return {};
    }
    OperationResult ending = check();
    if (ending.status != Status::done) return ending;
    owner_.mine().waits_for.store(1 + awaited_peer(), std::memory_order_relaxed);
    owner_.waiting_row_.store(awaited_row(), std::memory_order_relaxed);
    tell_wait();
    give_notice();
    if (sockets_) {
        wait_for_sockets();
    } else {
        if (!sleepy_) {  // and look once more for what peers did before they could see that
            announced_ = host.announce_sleep();
            sleepy_ = true;
        } else {
            host.sleep(announced_, kSleepMs);
            stay_awake();
        }
    }
    return {};
}

void Executor::OperationRun::stay_awake() {
    if (sleepy_) owner_.host_->retract_sleep();
    sleepy_ = false;
}

// Sleeps until a socket brings something that can be used now. What cannot stays unread: to be woken by it again and
// again would take the processor from those who have work.
void Executor::OperationRun::wait_for_sockets() {
    std::vector<pollfd> polled;
    bool others = false;
    for (int32_t peer : peers_) {
        for (size_t connection = 0; connection < owner_.sockets_[peer].size(); ++connection) {
            const Link* link = owner_.links_[peer][connection].get();
            short events = link->events();
            if (met_) events = static_cast<short>(events | useful(link));
            if (events != 0) polled.push_back({owner_.sockets_[peer][connection], events, 0});
        }
        others = others || owner_.sockets_[peer].empty();
    }
    // Not all that can happen comes through sockets; a millisecond is short enough for the rest.
    poll(polled.data(), polled.size(), others ? 1 : kSleepMs);
}

short Executor::OperationRun::useful(const Link* link) const {
    short events = 0;
    for (const QueueProgress& queue : queues_) {
        if (queue.link != link || queue.next == queue.count()) continue;
        bool now = !queue.sends || queue.current != kNone || !queue.ready.empty();
        if (now) events = static_cast<short>(events | (queue.sends ? POLLOUT : POLLIN));
    }
    return events;
}

OperationResult Executor::OperationRun::check() {
    int32_t peer = awaited_peer();
    int32_t row = awaited_row();
    if (int32_t other = owner_.given_up_by(); other >= 0) return {Status::given_up, other, row, other};
    Loss loss = owner_.loss();
    if (loss.rank >= 0) return {loss.frozen ? Status::frozen : Status::lost, loss.rank, row, peer};
    OperationResult cut = find_cut();
    if (cut.status != Status::done) {
        cut.row = row;
        return cut;
    }
    for (int32_t other : peers_) {
        auto gone = [](auto& link) { return link->gone(); };
        if (std::ranges::any_of(owner_.links_[other], gone)) {
            OperationResult ending = find_cause(other);
            ending.row = row;
            return ending;
        }
    }
    for (int32_t other : peers_) {
        if (owner_.local_[other] < 0) continue;
        if (other == peer && owner_.has_left(other)) {
            // What it sent before it left may still be on its way here.
            if (++gone_checks_ < 10) break;
            OperationResult ending = find_cause(other);
            ending.row = row;
            return ending;
        }
    }
    if (owner_.cancelled_.load()) return {Status::interrupted, owner_.rank_, row, peer};
    if (Clock::now() > deadline_) {
        int32_t culprit = owner_.trace_wait(peer);
        return {Status::timed_out, culprit, row, culprit};
    }
    check_interrupt();
    return {};
}

// Tells ranks of other machines which peer this rank waits for, so that they find the rank that delays all others.
void Executor::OperationRun::tell_wait() {
    int32_t peer = awaited_peer();
    if (!owner_.has_remote_ || peer == owner_.told_waiting_for_ || Clock::now() < began_ + kTellWait) return;
    owner_.told_waiting_for_ = peer;
    owner_.report_to_remote(Status::done, peer);
}

// Reports the rank that is waited for, when that takes long or the rank is silent. A slow rank is only reported.
void Executor::OperationRun::give_notice() {
    if (!owner_.tell_) return;
    Waiting waiting = owner_.waiting();
    if (waiting.rank < 0) return;
    bool late = Clock::now() >= next_notice_;
    bool silent = waiting.silent_ms > 0 && suspected_ != waiting.rank;
    if (!late && !silent) return;
    if (late) next_notice_ = Clock::now() + (Clock::now() - began_);
    if (silent) suspected_ = waiting.rank;
    owner_.tell_(waiting);
}

OperationResult Executor::OperationRun::find_cut() {
    auto now = Clock::now();
    bool look = sockets_ && now >= next_look_;
    if (look) next_look_ = now + std::chrono::milliseconds(kLookMs);
    for (int32_t peer : peers_) {
        auto& links = owner_.links_[peer];
        for (size_t connection = 0; connection < links.size(); ++connection) {
            bool corrupt = links[connection]->corrupt();
            if (!corrupt && !(look && links[connection]->stuck())) continue;
            auto number = static_cast<int32_t>(connection);
            owner_.host_->declare_cut(owner_.job_[owner_.rank_], owner_.job_[peer], number, corrupt);
        }
    }
    return owner_.cut();
}

// Why nothing more comes from a peer.
OperationResult Executor::OperationRun::find_cause(int32_t peer) {
    bool local = owner_.local_[peer] >= 0, socket = !owner_.sockets_[peer].empty();
    // One that hung up may have died, which the watch is about to see, or have given up because of a third, whom rank 0
    // or its board is about to name.
    auto told = [&] {
        return owner_.loss().rank >= 0 || owner_.host_->cut().seen() || (local && owner_.has_left(peer)) ||
               owner_.reported_by_remote().status != Status::done;
    };
    for (int i = 0; i < kVerdictMs && socket && !told(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (int32_t other = owner_.given_up_by(); other >= 0) return {Status::given_up, other, -1, other};
    // One of this machine may have left because of a third that died, which the watch of this rank may see later.
    owner_.host_->find_dead();
    Loss loss = owner_.loss();
    if (loss.rank >= 0) return {loss.frozen ? Status::frozen : Status::lost, loss.rank, -1, peer};
    if (OperationResult cut = owner_.cut(); cut.status != Status::done) return cut;
    OperationResult heard = owner_.reported_by(peer);
    if (heard.status == Status::done) heard = owner_.reported_by_remote();
    if (heard.status != Status::done) return heard;
    if (local && owner_.has_left(peer)) return {Status::left, peer, -1, peer};
    if (Clock::now() > deadline_) return {Status::timed_out, peer, -1, peer};  // as it has for the peer
    // It lives, its board and rank 0 have nothing to say: so it is the connection that ended, not the peer.
    auto& links = owner_.links_[peer];
    auto gone = std::ranges::find_if(links, [](const auto& link) { return link->gone(); });
    if (local && socket && gone != links.end()) {
        owner_.host_->declare_cut(owner_.job_[owner_.rank_], owner_.job_[peer],
                                  static_cast<int32_t>(gone - links.begin()), false);
        return owner_.cut();
    }
    return {Status::lost, peer, -1, peer};
}

// The peer that this rank waits for: that of the first transfer not received, else of the first not taken.
int32_t Executor::OperationRun::awaited_peer() const {
    if (!met_) return waiting_;
    for (const QueueProgress& queue : queues_) {
        if (!queue.sends && queue.next < queue.count()) return queue.peer();
    }
    for (const QueueProgress& queue : queues_) {
        if (queue.sends && queue.left < queue.count()) return queue.peer();
    }
    for (const QueueProgress& queue : queues_) {
        if (!queue.link->quiet()) return queue.peer();
    }
    return waiting_;
}

// The row of the transfer that this rank waits for, by the same rule, or -1.
int32_t Executor::OperationRun::awaited_row() const {
    for (const QueueProgress& queue : queues_) {
        if (!queue.sends && queue.next < queue.count()) return script_->tasks[first_open(queue)].row;
    }
    for (const QueueProgress& queue : queues_) {
        if (queue.sends && queue.left < queue.count()) return script_->tasks[first_open(queue)].row;
    }
    return -1;
}

// The first task of a queue in row order that has not been received, or has not left.
int32_t Executor::OperationRun::first_open(const QueueProgress& queue) const {
    if (queue.in_order) return queue.task(queue.sends ? queue.left : queue.next);
    auto open = [&](int32_t task) { return passed_[task] == 0; };
    return *std::ranges::find_if(queue.queue->tasks, open);
}

}  // namespace weft::runtime
