// One operation under way at one rank: which tasks may go next (send, receive, reduce), and which peer it waits for.
// Python half: src/weft/runtime/engines/native_engine.py.
#include "runtime/executor.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/work_limit.hpp"
#include "runtime/copy_bytes.hpp"
#include "runtime/timing.hpp"

namespace weft::runtime {
namespace {

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

class Executor::OperationRun {
public:
    explicit OperationRun(Executor& owner) : owner_(owner) {}
    OperationRun(const OperationRun&) = delete;
    OperationRun& operator=(const OperationRun&) = delete;

    OperationResult go(const Operation& operation) {
        // Also after an error. The memory is shared with children of fork, where destructors must leave the count alone.
        struct Awake {
            OperationRun& run;
            ~Awake() { run.stay_awake(); }
        } awake{*this};
        prepare(operation);
        return carry_out();
    }

private:
    OperationResult carry_out() {
        announce();
        send_ahead();
        OperationResult met = meet();
        if (met.status != Status::done) return met;
        for (size_t i = 0; i < queues_.size(); ++i) sinks_.emplace_back(operation_->memory, *script_);
        for (int32_t task : script_->local) {
            if (start_needs_[task] == 0) start_local(task);
        }
        while (!finished()) {
            if (advance()) {
                idle_ = 0;
                stay_awake();
                continue;
            }
            OperationResult ending = rest();
            if (ending.status != Status::done) return ending;
        }
        wake();
        return {};
    }

    // Everything as before the first task; the room that earlier operations took is used again.
    void prepare(const Operation& operation) {
        operation_ = &operation;
        script_ = operation.script;
        began_ = Clock::now();
        deadline_ = began_ + std::chrono::milliseconds(operation.timeout_ms);
        next_notice_ = began_ + std::chrono::seconds(kNoticeSeconds);
        next_look_ = {};
        start_needs_.clear();
        apply_needs_.clear();
        for (const Task& task : script_->tasks) {
            start_needs_.push_back(task.start_needs);
            apply_needs_.push_back(task.apply_needs);
        }
        arrived_.assign(script_->tasks.size(), 0);
        queues_.clear();
        sinks_.clear();
        peers_.clear();
        sockets_ = met_ = false;
        for (const auto& queue : script_->sends) add_queue(queue, true);
        for (const auto& queue : script_->receives) add_queue(queue, false);
        open_ = static_cast<int64_t>(script_->tasks.size());
        idle_ = rounds_ = 0;
        gone_checks_ = 0;
        waiting_ = suspected_ = -1;
    }

    static constexpr Reach kNowhere{};
    static constexpr int kVerdictMs = 500;
    static constexpr int kWakeEvery = 4;  // rounds
    static constexpr int64_t kSpins = 2000, kYields = 20, kCrowdedYields = 20;
    static constexpr int64_t kSocketYields = 2;  // the kernel has nothing to tell until the peer gets to run
    static constexpr std::chrono::microseconds kSocketSpin{300};  // from the start of an operation
    static constexpr int kSleepMs = 20;
    static constexpr int kLookMs = 250;  // from one look at what the kernel knows to the next
    static constexpr std::chrono::milliseconds kTellWait{500};  // until the ranks of other machines are told of a wait
    static constexpr int kNoticeSeconds = 5;  // until a slow rank is named; then after twice as long, and so on

    // A queue of tasks on its way over one link.
    struct QueueProgress {
        const Script::Queue* queue;
        bool sends;
        Link* link;
        size_t next = 0;  // task to be sent or received
        size_t left = 0;  // sends that have left
        bool receiving = false, staged = false;

        int32_t peer() const { return queue->peer; }
        size_t count() const { return queue->tasks.size(); }
        int32_t task(size_t i) const { return queue->tasks[i]; }
    };

    void add_queue(const Script::Queue& queue, bool sends) {
        queues_.push_back({&queue, sends, owner_.links_[queue.peer].at(static_cast<size_t>(queue.connection)).get()});
        if (std::ranges::find(peers_, queue.peer) == peers_.end()) peers_.push_back(queue.peer);
        sockets_ = sockets_ || !owner_.sockets_[queue.peer].empty();
    }

    void announce() {
        owner_.mine().doing.store(operation_->fingerprint, std::memory_order_relaxed);
        for (int32_t peer : peers_) {
            auto found = script_->between.find(peer);
            uint64_t between = found == script_->between.end() ? 0 : found->second;
            auto reach = script_->peer_reach.find(peer);
            const Reach& reached = reach == script_->peer_reach.end() ? kNowhere : reach->second;
            for (auto& link : owner_.links_[peer]) link->open(operation_->fingerprint ^ between, *operation_, reached);
        }
    }

    // What waits where peers look only once they agree on the operation is sent before that is known, so that it is there
    // as soon as they do.
    void send_ahead() {
        for (QueueProgress& queue : queues_) {
            if (script_->needs_all && queue.sends && queue.link->sends_ahead()) send_ahead(queue);
        }
        for (int32_t peer : peers_) {
            for (auto& link : owner_.links_[peer]) link->wake();
        }
    }

    void send_ahead(QueueProgress& queue) {
        while (queue.next < queue.count()) {
            int32_t task = queue.task(queue.next);
            // To push is to write to the peer's memory.
            if (start_needs_[task] > 0 || script_->tasks[task].pushed) break;
            if (!queue.link->send(script_->tasks[task])) break;
            ++queue.next;
        }
        queue.link->flush();
    }

    // No rank uses what came from another, or touches the other's memory, before it and all of its peers agree on the
    // operation.
    OperationResult meet() {
        for (;;) {
            int32_t gone = -1, different = -1, corrupt = -1;
            waiting_ = -1;
            // All of them every time: each has to be told the operation of this rank, and a peer in another operation
            // explains more than a peer that left because of that.
            for (int32_t peer : peers_) {
                for (auto& link : owner_.links_[peer]) {
                    Peer found = link->peer();
                    if (found == Peer::differs) different = peer;
                    if (found == Peer::gone) gone = peer;
                    if (found == Peer::corrupt) corrupt = peer;
                    if (found == Peer::waiting) waiting_ = peer;
                }
            }
            if (corrupt >= 0) return find_cut();
            if (different >= 0) return {Status::differs, different, -1, different};
            if (gone >= 0) return find_cause(gone);
            if (waiting_ < 0) {
                met_ = true;
                return {};
            }
            OperationResult ending = rest();
            if (ending.status != Status::done) return ending;
        }
    }

    bool finished() {
        if (open_ > 0) return false;
        return std::ranges::all_of(queues_, [](const QueueProgress& queue) { return queue.link->quiet(); });
    }

    bool advance() {
        bool any = false;
        for (size_t i = 0; i < queues_.size(); ++i) {
            QueueProgress& queue = queues_[i];
            any = (queue.sends ? advance_send(queue) : advance_receive(queue, sinks_[i])) || any;
        }
        if (any) {
            for (QueueProgress& queue : queues_) queue.link->flush();
            if (++rounds_ % kWakeEvery == 0) wake();
        }
        return any;
    }

    void wake() {
        for (QueueProgress& queue : queues_) queue.link->wake();
    }

    bool advance_send(QueueProgress& queue) {
        bool any = false;
        while (queue.next < queue.count()) {
            int32_t task = queue.task(queue.next);
            if (start_needs_[task] > 0 || !queue.link->send(script_->tasks[task])) break;
            ++queue.next;
            any = true;
        }
        size_t left = std::min<size_t>(queue.link->left(), queue.next);
        for (; queue.left < left; ++queue.left) {
            any = true;
            --open_;
            release(script_->tasks[queue.task(queue.left)].left);
        }
        return any;
    }

    // One task at a time: others may have the next piece of what this rank just has in its cache.
    bool advance_receive(QueueProgress& queue, Sink& sink) {
        if (queue.next == queue.count()) return false;
        int32_t id = queue.task(queue.next);
        const Task& task = script_->tasks[id];
        if (!queue.receiving) {
            bool now = apply_needs_[id] == 0;
            if (!now && task.stage < 0) return false;
            sink.begin(task, !now);
            queue.receiving = true;
            queue.staged = !now;
        }
        if (!queue.link->receive(sink)) return false;
        queue.receiving = false;
        ++queue.next;
        if (queue.staged) {
            arrived_[id] = 1;
            if (apply_needs_[id] == 0) unstage(id);
        } else {
            applied(id);
        }
        return true;
    }

    void start_local(int32_t id) {
        const Task& task = script_->tasks[id];
        auto bytes = static_cast<int64_t>(operation_->memory.element);
        std::byte* into = operation_->memory.stage + task.stage * bytes;
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script_->parts[p];
            // Tasks within a rank are written down from the sender's side: `here` is read, `there` is written.
            const std::byte* from = operation_->memory.region[static_cast<int>(part.here_in)] + part.here * bytes;
            copy_bytes(into, from, static_cast<size_t>(part.elements * bytes));
            into += part.elements * bytes;
        }
        arrived_[id] = 1;
        release(task.left);
        if (apply_needs_[id] == 0) unstage(id);
    }

    void unstage(int32_t id) {
        const Task& task = script_->tasks[id];
        auto bytes = static_cast<int64_t>(operation_->memory.element);
        const std::byte* from = operation_->memory.stage + task.stage * bytes;
        arrived_[id] = 0;
        bool local = task.peer == owner_.rank_;
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script_->parts[p];
            auto region = static_cast<int>(local ? part.there_in : part.here_in);
            std::byte* into = operation_->memory.region[region] + (local ? part.there : part.here) * bytes;
            if (task.reduces) {
                reduce(operation_->memory.dtype, operation_->memory.op, into, from, static_cast<size_t>(part.elements));
            } else {
                copy_bytes(into, from, static_cast<size_t>(part.elements * bytes));
            }
            from += part.elements * bytes;
        }
        applied(id);
    }

    void applied(int32_t id) {
        --open_;
        release(script_->tasks[id].applied);
    }

    void release(int32_t waiter) {
        for (; waiter != kNone; waiter = script_->waiters[waiter].next) {
            const Waiter& one = script_->waiters[waiter];
            if (one.apply) {
                if (--apply_needs_[one.task] == 0 && arrived_[one.task]) unstage(one.task);
            } else if (--start_needs_[one.task] == 0 && script_->tasks[one.task].peer == owner_.rank_) {
                start_local(one.task);
            }
        }
    }

    // To spin saves the microseconds of being woken, which count in short operations only. A look at a socket is a
    // system call, and whoever trains computes meanwhile: a long operation leaves the processor to others.
    bool may_spin() const { return !owner_.host_->crowded() && (!sockets_ || Clock::now() - began_ < kSocketSpin); }

    // Nothing to do: spin a little, let others run, and at last sleep until the doorbell rings.
    OperationResult rest() {
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

    void stay_awake() {
        if (sleepy_) owner_.host_->retract_sleep();
        sleepy_ = false;
    }

    // Sleeps until a socket brings something that can be used now. What cannot stays unread: to be woken by it again and
    // again would take the processor from those who have work.
    void wait_for_sockets() {
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

    short useful(const Link* link) const {
        short events = 0;
        for (const QueueProgress& queue : queues_) {
            if (queue.link != link || queue.next == queue.count()) continue;
            int32_t task = queue.task(queue.next);
            bool now = queue.sends ? start_needs_[task] == 0
                                   : queue.receiving || apply_needs_[task] == 0 || script_->tasks[task].stage >= 0;
            if (now) events = static_cast<short>(events | (queue.sends ? POLLOUT : POLLIN));
        }
        return events;
    }

    OperationResult check() {
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
    void tell_wait() {
        int32_t peer = awaited_peer();
        if (!owner_.has_remote_ || peer == owner_.told_waiting_for_ || Clock::now() < began_ + kTellWait) return;
        owner_.told_waiting_for_ = peer;
        owner_.report_to_remote(Status::done, peer);
    }

    // Reports the rank that is waited for, when that takes long or the rank is silent. A slow rank is only reported.
    void give_notice() {
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

    OperationResult find_cut() {
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
    OperationResult find_cause(int32_t peer) {
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
    int32_t awaited_peer() const {
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
    int32_t awaited_row() const {
        for (const QueueProgress& queue : queues_) {
            if (!queue.sends && queue.next < queue.count()) return script_->tasks[queue.task(queue.next)].row;
        }
        for (const QueueProgress& queue : queues_) {
            if (queue.sends && queue.left < queue.count()) return script_->tasks[queue.task(queue.left)].row;
        }
        return -1;
    }

    Executor& owner_;
    const Operation* operation_ = nullptr;
    const Script* script_ = nullptr;
    std::vector<int32_t> start_needs_, apply_needs_;
    std::vector<uint8_t> arrived_;  // staged, and waiting to be applied
    std::vector<QueueProgress> queues_;
    std::vector<Sink> sinks_;
    std::vector<int32_t> peers_;
    bool sockets_ = false, met_ = false;
    int64_t open_ = 0;  // tasks that have not left or not been applied
    int64_t idle_ = 0, rounds_ = 0;
    int gone_checks_ = 0;
    bool sleepy_ = false;  // announced that it is about to sleep
    uint32_t announced_ = 0;
    int32_t waiting_ = -1, suspected_ = -1;
    Clock::time_point began_, deadline_, next_notice_, next_look_{};
};

OperationResult Executor::carry_out(const Operation& operation) {
    if (!run_) run_ = std::make_shared<OperationRun>(*this);
    return run_->go(operation);
}

}  // namespace weft::runtime
