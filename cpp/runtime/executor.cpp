#include "executor.hpp"

#include <poll.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "../patience.hpp"
#include "copying.hpp"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerdictMs = 500;
constexpr int kWakeEvery = 4;  // rounds

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

// One operation under way.
class Executor::Run {
public:
    Run(Executor& owner, const Operation& operation)
        : owner_(owner),
          operation_(operation),
          script_(*operation.script),
          start_needs_(script_.tasks.size()),
          apply_needs_(script_.tasks.size()),
          arrived_(script_.tasks.size(), 0),
          deadline_(Clock::now() + std::chrono::milliseconds(operation.timeout_ms)) {
        for (size_t i = 0; i < script_.tasks.size(); ++i) {
            start_needs_[i] = script_.tasks[i].start_needs;
            apply_needs_[i] = script_.tasks[i].apply_needs;
        }
        for (const auto& queue : script_.sends) add_lines(queue, true);
        for (const auto& queue : script_.receives) add_lines(queue, false);
        open_ = static_cast<int64_t>(script_.tasks.size());
    }

    Ending go() {
        announce();
        Ending met = meet();
        if (met.status != Status::done) return met;
        for (size_t i = 0; i < lines_.size(); ++i) sinks_.emplace_back(operation_.memory, script_);
        for (int32_t task : script_.local) {
            if (start_needs_[task] == 0) start_local(task);
        }
        while (!finished()) {
            if (advance()) {
                idle_ = 0;
                continue;
            }
            Ending ending = rest();
            if (ending.status != Status::done) return ending;
        }
        wake();
        return {};
    }

private:
    // Tasks of one queue that go over one of the links to its peer: every so many of them, from the first on.
    struct Line {
        int32_t peer;
        const std::vector<int32_t>* queue;
        size_t first, every, count;
        bool sends;
        Link* link;
        size_t next = 0;  // task to be sent or received
        size_t left = 0;  // sends that have left
        bool receiving = false, staged = false;

        int32_t task(size_t i) const { return (*queue)[first + i * every]; }
    };

    void add_lines(const Script::Queue& queue, bool sends) {
        auto& links = owner_.links_[queue.peer];
        size_t every = links.size();
        for (size_t first = 0; first < every; ++first) {
            size_t count = queue.tasks.size() > first ? (queue.tasks.size() - first - 1) / every + 1 : 0;
            lines_.push_back({queue.peer, &queue.tasks, first, every, count, sends, links[first].get()});
        }
        if (std::ranges::find(peers_, queue.peer) == peers_.end()) peers_.push_back(queue.peer);
        sockets_ = sockets_ || !owner_.sockets_[queue.peer].empty();
    }

    void announce() {
        owner_.mine().doing.store(operation_.fingerprint, std::memory_order_relaxed);
        for (int32_t peer : peers_) {
            auto found = script_.between.find(peer);
            uint64_t between = found == script_.between.end() ? 0 : found->second;
            for (auto& link : owner_.links_[peer]) link->open(operation_.fingerprint ^ between, operation_);
        }
    }

    // Nobody moves data before all that have to do with each other agree on what this is.
    Ending meet() {
        for (;;) {
            int32_t gone = -1, different = -1;
            waiting_ = -1;
            // All of them every time: each is to hear what this rank is in, and who differs is better news than who is
            // gone because of that.
            for (int32_t peer : peers_) {
                for (auto& link : owner_.links_[peer]) {
                    Peer found = link->peer();
                    if (found == Peer::differs) different = peer;
                    if (found == Peer::gone) gone = peer;
                    if (found == Peer::waiting) waiting_ = peer;
                }
            }
            if (different >= 0) return {Status::differs, different, -1, different};
            if (gone >= 0) return blame(gone);
            if (waiting_ < 0) {
                met_ = true;
                return {};
            }
            Ending ending = rest();
            if (ending.status != Status::done) return ending;
        }
    }

    bool finished() {
        if (open_ > 0) return false;
        return std::ranges::all_of(lines_, [](const Line& line) { return line.link->quiet(); });
    }

    bool advance() {
        bool any = false;
        for (size_t i = 0; i < lines_.size(); ++i) {
            Line& line = lines_[i];
            any = (line.sends ? advance_send(line) : advance_receive(line, sinks_[i])) || any;
        }
        if (any) {
            for (Line& line : lines_) line.link->flush();
            if (++rounds_ % kWakeEvery == 0) wake();
        }
        return any;
    }

    void wake() {
        for (Line& line : lines_) line.link->wake();
    }

    bool advance_send(Line& line) {
        bool any = false;
        while (line.next < line.count) {
            int32_t task = line.task(line.next);
            if (start_needs_[task] > 0 || !line.link->send(script_.tasks[task])) break;
            ++line.next;
            any = true;
        }
        size_t left = std::min<size_t>(line.link->left(), line.next);
        for (; line.left < left; ++line.left) {
            any = true;
            --open_;
            release(script_.tasks[line.task(line.left)].left);
        }
        return any;
    }

    // One task at a time: others may have the next piece of what this rank just has in its cache.
    bool advance_receive(Line& line, Sink& sink) {
        if (line.next == line.count) return false;
        int32_t id = line.task(line.next);
        const Task& task = script_.tasks[id];
        if (!line.receiving) {
            bool now = apply_needs_[id] == 0;
            if (!now && task.stage < 0) return false;
            sink.begin(task, !now);
            line.receiving = true;
            line.staged = !now;
        }
        if (!line.link->receive(sink)) return false;
        line.receiving = false;
        ++line.next;
        if (line.staged) {
            arrived_[id] = 1;
            if (apply_needs_[id] == 0) unstage(id);
        } else {
            applied(id);
        }
        return true;
    }

    void start_local(int32_t id) {
        const Task& task = script_.tasks[id];
        auto bytes = static_cast<int64_t>(operation_.memory.element);
        std::byte* into = operation_.memory.stage + task.stage * bytes;
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script_.parts[p];
            // Tasks within a rank are written down from the sender's side: `here` is read, `there` is written.
            const std::byte* from = operation_.memory.region[static_cast<int>(part.here_in)] + part.here * bytes;
            copy_bytes(into, from, static_cast<size_t>(part.elements * bytes));
            into += part.elements * bytes;
        }
        arrived_[id] = 1;
        release(task.left);
        if (apply_needs_[id] == 0) unstage(id);
    }

    void unstage(int32_t id) {
        const Task& task = script_.tasks[id];
        auto bytes = static_cast<int64_t>(operation_.memory.element);
        const std::byte* from = operation_.memory.stage + task.stage * bytes;
        arrived_[id] = 0;
        bool local = task.peer == owner_.rank_;
        for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
            const Part& part = script_.parts[p];
            auto region = static_cast<int>(local ? part.there_in : part.here_in);
            std::byte* into = operation_.memory.region[region] + (local ? part.there : part.here) * bytes;
            if (task.reduces) {
                reduce(operation_.memory.dtype, operation_.memory.op, into, from, static_cast<size_t>(part.elements));
            } else {
                copy_bytes(into, from, static_cast<size_t>(part.elements * bytes));
            }
            from += part.elements * bytes;
        }
        applied(id);
    }

    void applied(int32_t id) {
        --open_;
        release(script_.tasks[id].applied);
    }

    void release(int32_t waiter) {
        for (; waiter != kNone; waiter = script_.waiters[waiter].next) {
            const Waiter& one = script_.waiters[waiter];
            if (one.apply) {
                if (--apply_needs_[one.task] == 0 && arrived_[one.task]) unstage(one.task);
            } else if (--start_needs_[one.task] == 0 && script_.tasks[one.task].peer == owner_.rank_) {
                start_local(one.task);
            }
        }
    }

    // Nothing to do: spin a little, let others run, and at last sleep until somebody rings.
    Ending rest() {
        if (++idle_ == 1) wake();
        Host& host = *owner_.host_;
        static const bool crowded = std::thread::hardware_concurrency() < static_cast<unsigned>(host.ranks());
        if (!crowded && idle_ < 2000) {
            pause();
            return {};
        }
        if (idle_ < (crowded ? (sockets_ ? 2 : 20) : 2020)) {
            sched_yield();
            return {};
        }
        Ending ending = check();
        if (ending.status != Status::done) return ending;
        owner_.mine().waits_for.store(1 + whom(), std::memory_order_relaxed);
        if (sockets_) {
            wait_for_sockets();
        } else {
            uint32_t heard = host.mine().bell.load(std::memory_order_seq_cst);
            if (heard == heard_) {
                host.sleep(heard, 20);
            }
            heard_ = heard;
        }
        return {};
    }

    // Sleeps until a socket brings something that can be used now. What cannot stays unread: to be woken by it again and
    // again would take the processor from those who have work.
    void wait_for_sockets() {
        std::vector<pollfd> polled;
        bool others = false;
        for (int32_t peer : peers_) {
            for (size_t stream = 0; stream < owner_.sockets_[peer].size(); ++stream) {
                short events = owner_.links_[peer][stream]->events();
                if (met_) events = static_cast<short>(events | useful(peer, stream));
                if (events != 0) polled.push_back({owner_.sockets_[peer][stream], events, 0});
            }
            others = others || owner_.sockets_[peer].empty();
        }
        // Not all that can happen comes through sockets; a millisecond is short enough for the rest.
        poll(polled.data(), polled.size(), others ? 1 : 20);
    }

    short useful(int32_t peer, size_t stream) const {
        short events = 0;
        for (const Line& line : lines_) {
            if (line.peer != peer || line.first != stream || line.next == line.count) continue;
            int32_t task = line.task(line.next);
            bool now = line.sends ? start_needs_[task] == 0
                                  : line.receiving || apply_needs_[task] == 0 || script_.tasks[task].stage >= 0;
            if (now) events = static_cast<short>(events | (line.sends ? POLLOUT : POLLIN));
        }
        return events;
    }

    Ending check() {
        Loss loss = owner_.loss();
        int32_t peer = whom();
        int32_t row = which();
        if (loss.rank >= 0) return {loss.frozen ? Status::frozen : Status::lost, loss.rank, row, peer};
        for (int32_t other : peers_) {
            auto gone = [](auto& link) { return link->gone(); };
            if (std::ranges::any_of(owner_.links_[other], gone)) {
                Ending ending = blame(other);
                ending.row = row;
                return ending;
            }
        }
        for (int32_t other : peers_) {
            if (owner_.local_[other] < 0) continue;
            Channel& there = owner_.host_->board(owner_.local_[other]).channel[owner_.channel_];
            bool needed = other == peer;
            if (needed && (there.failed.load() != 0 || there.closed.load() != 0)) {
                // What it sent before it left may still be on its way here.
                if (++gone_checks_ < 10) break;
                Ending ending = blame(other);
                ending.row = row;
                return ending;
            }
        }
        if (Clock::now() > deadline_) {
            int32_t culprit = owner_.follow(peer);
            return {Status::timed_out, culprit, row, culprit};
        }
        check_interrupt();
        return {};
    }

    Ending blame(int32_t peer) {
        // One of another machine may have hung up because of a third, whom rank 0 is about to name.
        for (int i = 0; i < kVerdictMs && owner_.local_[peer] < 0 && owner_.loss().rank < 0; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        Loss loss = owner_.loss();
        if (loss.rank >= 0) return {loss.frozen ? Status::frozen : Status::lost, loss.rank, -1, peer};
        if (owner_.local_[peer] >= 0) {
            Ending heard = owner_.heard_from(peer);
            if (heard.status != Status::done) return heard;
            Channel& there = owner_.host_->board(owner_.local_[peer]).channel[owner_.channel_];
            if (there.closed.load() != 0) return {Status::left, peer, -1, peer};
        }
        return {Status::lost, peer, -1, peer};
    }

    // The peer that is waited for, and the transfer: the first that was not received, else the first not taken.
    int32_t whom() const {
        if (!met_) return waiting_;
        for (const Line& line : lines_) {
            if (!line.sends && line.next < line.count) return line.peer;
        }
        for (const Line& line : lines_) {
            if (line.sends && line.left < line.count) return line.peer;
        }
        for (const Line& line : lines_) {
            if (!line.link->quiet()) return line.peer;
        }
        return waiting_;
    }
    int32_t which() const {
        for (const Line& line : lines_) {
            if (!line.sends && line.next < line.count) return script_.tasks[line.task(line.next)].row;
        }
        for (const Line& line : lines_) {
            if (line.sends && line.left < line.count) return script_.tasks[line.task(line.left)].row;
        }
        return -1;
    }

    Executor& owner_;
    const Operation& operation_;
    const Script& script_;
    std::vector<int32_t> start_needs_, apply_needs_;
    std::vector<uint8_t> arrived_;  // staged, and waiting to be applied
    std::vector<Line> lines_;
    std::vector<Sink> sinks_;
    std::vector<int32_t> peers_;
    bool sockets_ = false, met_ = false;
    int64_t open_ = 0;  // tasks that have not left or not been applied
    int64_t idle_ = 0, rounds_ = 0;
    int gone_checks_ = 0;
    uint32_t heard_ = 0;
    int32_t waiting_ = -1;
    Clock::time_point deadline_;
};

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
