// Carries out the tasks of one operation; operation_run.hpp has what it keeps of them.
// Python half: src/weft/runtime/engines/native_engine.py.
#include "runtime/operation_run.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "runtime/copy_bytes.hpp"

namespace weft::runtime {
namespace {

constexpr Reach kNowhere{};
constexpr int kWakeEvery = 4;  // rounds
constexpr int kNoticeSeconds = 5;  // until a slow rank is named; then after twice as long, and so on

}  // namespace

OperationResult Executor::OperationRun::go(const Operation& operation) {
    // Also after an error. The memory is shared with children of fork, where destructors must leave the count alone.
    struct Awake {
        OperationRun& run;
        ~Awake() { run.stay_awake(); }
    } awake{*this};
    prepare(operation);
    return carry_out();
}

OperationResult Executor::OperationRun::carry_out() {
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
void Executor::OperationRun::prepare(const Operation& operation) {
    operation_ = &operation;
    script_ = operation.script;
    began_ = operation.began;
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
    passed_.assign(script_->tasks.size(), 0);
    late_.clear();
    queues_.clear();
    sinks_.clear();
    peers_.clear();
    sockets_ = met_ = false;
    for (const auto& queue : script_->sends) add_queue(queue, true);
    for (const auto& queue : script_->receives) add_queue(queue, false);
    find_ready();
    open_ = static_cast<int64_t>(script_->tasks.size());
    idle_ = rounds_ = 0;
    gone_checks_ = 0;
    waiting_ = suspected_ = -1;
}

void Executor::OperationRun::add_queue(const Script::Queue& queue, bool sends) {
    Link* link = owner_.links_[queue.peer].at(static_cast<size_t>(queue.connection)).get();
    queues_.push_back({&queue, sends, link, link->in_order()});
    if (std::ranges::find(peers_, queue.peer) == peers_.end()) peers_.push_back(queue.peer);
    sockets_ = sockets_ || !owner_.sockets_[queue.peer].empty();
}

void Executor::OperationRun::find_ready() {
    for (QueueProgress& queue : queues_) {
        if (!queue.sends || queue.in_order) continue;
        for (int32_t task : queue.queue->tasks) {
            if (start_needs_[task] == 0) queue.ready.push_back({script_->tasks[task].turn, task});
        }
        std::ranges::make_heap(queue.ready, std::greater{});
    }
}

void Executor::OperationRun::announce() {
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
void Executor::OperationRun::send_ahead() {
    for (QueueProgress& queue : queues_) {
        if (script_->needs_all && queue.sends && queue.link->sends_ahead()) send_ahead(queue);
    }
    for (int32_t peer : peers_) {
        for (auto& link : owner_.links_[peer]) {
            link->announce();
            link->wake();
        }
    }
}

void Executor::OperationRun::send_ahead(QueueProgress& queue) {
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
OperationResult Executor::OperationRun::meet() {
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

bool Executor::OperationRun::finished() {
    if (open_ > 0) return false;
    return std::ranges::all_of(queues_, [](const QueueProgress& queue) { return queue.link->quiet(); });
}

bool Executor::OperationRun::advance() {
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

void Executor::OperationRun::wake() {
    for (QueueProgress& queue : queues_) queue.link->wake();
}

bool Executor::OperationRun::advance_send(QueueProgress& queue) {
    if (!queue.in_order) return send_ready(queue);
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

// Sends what is ready, the earliest turn first, until the link takes no more.
bool Executor::OperationRun::send_ready(QueueProgress& queue) {
    bool any = false;
    for (;;) {
        if (queue.current == kNone) {
            if (queue.ready.empty()) return any;
            std::ranges::pop_heap(queue.ready, std::greater{});
            queue.current = queue.ready.back().task;
            queue.ready.pop_back();
        }
        if (!queue.link->send(script_->tasks[queue.current])) return any;
        int32_t id = std::exchange(queue.current, kNone);
        passed_[id] = 1;
        ++queue.next;
        ++queue.left;
        --open_;
        any = true;
        release(script_->tasks[id].left);
    }
}

// The task that a link brings next, or kNone as long as that is not known.
int32_t Executor::OperationRun::find_arriving(QueueProgress& queue, Sink& sink) {
    if (queue.in_order) return queue.task(queue.next);
    if (queue.current != kNone) return queue.current;
    const std::vector<int32_t>& turns = queue.queue->turns;
    while (passed_[turns[queue.first]] != 0) ++queue.first;
    int32_t likely = turns[queue.first];
    bool into_place = apply_needs_[likely] == 0 && !script_->tasks[likely].reduces;
    if (into_place) sink.begin(script_->tasks[likely], nullptr);
    std::optional<uint32_t> number = queue.link->arriving(into_place ? &sink : nullptr);
    if (!number) return kNone;
    if (*number >= queue.count() || passed_[queue.task(*number)] != 0) {
        queue.link->distrust();
        return kNone;
    }
    queue.current = queue.task(*number);
    queue.receiving = into_place && queue.current == likely;
    queue.staged = false;
    return queue.current;
}

// Where a task is put that cannot be applied yet.
std::byte* Executor::OperationRun::stage_of(int32_t id) {
    const Task& task = script_->tasks[id];
    size_t element = operation_->memory.element;
    if (task.stage >= 0) return operation_->memory.stage + static_cast<size_t>(task.stage) * element;
    return late_.room(id, static_cast<size_t>(task.elements) * element);
}

// One task at a time: others may have the next piece of what this rank just has in its cache.
bool Executor::OperationRun::advance_receive(QueueProgress& queue, Sink& sink) {
    if (queue.next == queue.count()) return false;
    int32_t id = find_arriving(queue, sink);
    if (id == kNone) return false;
    const Task& task = script_->tasks[id];
    if (!queue.receiving) {
        bool now = apply_needs_[id] == 0;
        if (!now && task.stage < 0 && queue.in_order) return false;
        sink.begin(task, now ? nullptr : stage_of(id));
        queue.receiving = true;
        queue.staged = !now;
    }
    if (!queue.link->receive(sink)) return false;
    queue.receiving = false;
    queue.current = kNone;
    passed_[id] = 1;
    ++queue.next;
    if (queue.staged) {
        arrived_[id] = 1;
        if (apply_needs_[id] == 0) unstage(id);
    } else {
        applied(id);
    }
    return true;
}

void Executor::OperationRun::start_local(int32_t id) {
    const Task& task = script_->tasks[id];
    auto bytes = static_cast<int64_t>(operation_->memory.element);
    std::byte* into = stage_of(id);
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

void Executor::OperationRun::unstage(int32_t id) {
    const Task& task = script_->tasks[id];
    auto bytes = static_cast<int64_t>(operation_->memory.element);
    const std::byte* from = stage_of(id);
    arrived_[id] = 0;
    bool local = task.peer == owner_.rank_;
    for (uint32_t p = task.first_part; p < task.first_part + task.parts; ++p) {
        const Part& part = script_->parts[p];
        const Memory& memory = operation_->memory;
        auto region = static_cast<int>(local ? part.there_in : part.here_in);
        std::byte* into = memory.region[region] + (local ? part.there : part.here) * bytes;
        if (task.reduces) {
            const std::byte* base = memory.region[static_cast<int>(part.base_in)] + part.base * bytes;
            reduce_to(memory.dtype, memory.op, into, base, from, static_cast<size_t>(part.elements));
        } else {
            copy_bytes(into, from, static_cast<size_t>(part.elements * bytes));
        }
        from += part.elements * bytes;
    }
    if (task.stage < 0) late_.give_back(id);
    applied(id);
}

void Executor::OperationRun::applied(int32_t id) {
    --open_;
    release(script_->tasks[id].applied);
}

void Executor::OperationRun::release(int32_t waiter) {
    for (; waiter != kNone; waiter = script_->waiters[waiter].next) {
        const Waiter& one = script_->waiters[waiter];
        if (one.apply) {
            if (--apply_needs_[one.task] == 0 && arrived_[one.task]) unstage(one.task);
        } else if (--start_needs_[one.task] == 0) {
            may_start(one.task);
        }
    }
}

void Executor::OperationRun::may_start(int32_t id) {
    const Task& task = script_->tasks[id];
    if (task.peer == owner_.rank_) {
        start_local(id);
    } else if (QueueProgress& queue = queues_[static_cast<size_t>(task.queue)]; !queue.in_order) {
        queue.ready.push_back({task.turn, id});
        std::ranges::push_heap(queue.ready, std::greater{});
    }
}

OperationResult Executor::carry_out(const Operation& operation) {
    if (!run_) run_ = std::make_shared<OperationRun>(*this);
    return run_->go(operation);
}

}  // namespace weft::runtime
