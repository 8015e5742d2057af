// One operation under way at one rank: which tasks may go next (send, receive, reduce), and which peer it waits for.
// operation_run.cpp carries tasks out, operation_wait.cpp waits and finds out why nothing comes.
// Python half: src/weft/runtime/engines/native_engine.py.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <vector>

#include "runtime/executor.hpp"
#include "runtime/late_tasks.hpp"
#include "runtime/timing.hpp"

namespace weft::runtime {

class Executor::OperationRun {
public:
    explicit OperationRun(Executor& owner) : owner_(owner) {}
    OperationRun(const OperationRun&) = delete;
    OperationRun& operator=(const OperationRun&) = delete;

    OperationResult go(const Operation& operation);

private:
    static constexpr std::chrono::microseconds kSocketSpin{300};  // from the start of an operation

    OperationResult carry_out();
    void prepare(const Operation& operation);

    // A send that may start; the first of its queue goes first.
    struct Ready {
        uint32_t turn;
        int32_t task;

        auto operator<=>(const Ready&) const = default;
    };

    // A queue of tasks on its way over one link.
    struct QueueProgress {
        const Script::Queue* queue;
        bool sends;
        Link* link;
        bool in_order;
        size_t next = 0;  // how many were sent or received; in order, the task that is next
        size_t left = 0;  // sends that have left
        bool receiving = false, staged = false;
        // Where order is free:
        size_t first = 0;  // all receives whose turn is before this one are over
        int32_t current = kNone;  // the task that is being sent or received
        std::vector<Ready> ready{};  // a heap

        int32_t peer() const { return queue->peer; }
        size_t count() const { return queue->tasks.size(); }
        int32_t task(size_t i) const { return queue->tasks[i]; }
    };

    void add_queue(const Script::Queue& queue, bool sends);
    void find_ready();
    void announce();
    void send_ahead();
    void send_ahead(QueueProgress& queue);
    OperationResult meet();
    bool finished();
    bool advance();
    void wake();
    bool advance_send(QueueProgress& queue);
    bool send_ready(QueueProgress& queue);
    int32_t find_arriving(QueueProgress& queue, Sink& sink);
    std::byte* stage_of(int32_t id);
    bool advance_receive(QueueProgress& queue, Sink& sink);
    void start_local(int32_t id);
    void unstage(int32_t id);
    void applied(int32_t id);
    void release(int32_t waiter);
    void may_start(int32_t id);

    // In operation_wait.cpp.
    //
    // To spin saves the microseconds of being woken, which count in short operations only. A look at a socket is a
    // system call, and whoever trains computes meanwhile: a long operation leaves the processor to others.
    bool may_spin() const { return !owner_.host_->crowded() && (!sockets_ || Clock::now() - began_ < kSocketSpin); }

    OperationResult rest();
    void stay_awake();
    void wait_for_sockets();
    short useful(const Link* link) const;
    OperationResult check();
    void tell_wait();
    void give_notice();
    OperationResult find_cut();
    OperationResult find_cause(int32_t peer);
    int32_t awaited_peer() const;
    int32_t awaited_row() const;
    int32_t first_open(const QueueProgress& queue) const;

    Executor& owner_;
    const Operation* operation_ = nullptr;
    const Script* script_ = nullptr;
    std::vector<int32_t> start_needs_, apply_needs_;
    std::vector<uint8_t> arrived_;  // staged, and waiting to be applied
    std::vector<uint8_t> passed_;  // sent or received, where order is free
    LateTasks late_;
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

}  // namespace weft::runtime
