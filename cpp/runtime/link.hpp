// The way to one other rank: how tasks get there and come from there.
// Python half: src/weft/runtime/transport/connect.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/kernels.hpp"
#include "runtime/script.hpp"
#include "runtime/shared_memory.hpp"
#include "runtime/timing.hpp"

namespace weft::runtime {

// The memory of this rank in one operation.
struct Memory {
    std::byte* region[kRegions];
    std::byte* stage;
    DType dtype;
    ReduceOp op;
    size_t element;
};

struct Operation {
    uint64_t fingerprint;
    const Script* script;
    Memory memory;
    uint64_t shared;  // bit r: region r is shared memory; kLarge, kExposed
    uint64_t address[kRegions];
    size_t bytes[kRegions];
    int64_t timeout_ms;
    Clock::time_point began;
};

// A position inside a task's destination, moved on as data comes in.
class Sink {
public:
    Sink(const Memory& memory, const Script& script) : memory_(memory), script_(script) {}

    // `stage`: where the data of the task is put, which is applied later; null to apply it as it comes.
    void begin(const Task& task, std::byte* stage) {
        task_ = &task;
        stage_ = stage;
        part_ = task.first_part;
        within_ = done_ = 0;
    }
    const Task& task() const { return *task_; }
    bool full() const { return done_ == task_->elements; }
    bool copies() const { return stage_ != nullptr || !task_->reduces; }
    int64_t left() const { return task_->elements - done_; }

    // The next run of elements that is contiguous in this memory and in that of its readers.
    struct Extent {
        std::byte* here;
        const std::byte* base;  // what a sum adds to
        Region there_in;
        int64_t there, elements;
    };
    Extent next() const;
    // Takes data for the next extent, or for part of it.
    void take(const std::byte* data, int64_t elements);
    // The data is in place already.
    void skip(int64_t elements);

private:
    const Memory& memory_;
    const Script& script_;
    const Task* task_ = nullptr;
    std::byte* stage_ = nullptr;
    uint32_t part_ = 0;
    int64_t within_ = 0, done_ = 0;
};

// What became of the peer, as far as its link can tell; `corrupt`: what came from it was changed on the way.
enum class Peer : uint8_t { waiting, ready, differs, gone, corrupt };

class Link {
public:
    virtual ~Link() = default;

    // A new operation, which the peer is told about at the latest by `announce`. Everything after that waits until the peer has
    // told, too. `reach` is how far this rank means to reach into the peer's regions: a peer that has less of them is in
    // another operation.
    virtual void open(uint64_t fingerprint, const Operation& operation, const Reach& reach) = 0;
    // Comes once what is sent ahead was sent, so that the peer sees both at once.
    virtual void announce() {}
    virtual Peer peer() = 0;
    // Events of the socket that bring this link nearer to `ready`; none for memory.
    virtual short events() const { return 0; }
    // Whether the connection is known to be closed. Reads nothing: what is read must be acted on before the rank sleeps.
    virtual bool gone() const { return false; }
    // Whether what came over it was changed on the way; nothing more is received then.
    virtual bool corrupt() const { return false; }
    // Whether what was sent has been on its way for so long that the way must be cut.
    virtual bool stuck() const { return false; }

    // Whether both ends go through the tasks of a queue in row order. Else the sender chooses, the peer is told which task
    // comes, and a task has left when it was sent.
    virtual bool in_order() const { return true; }
    // Sends (some more of) a task; true when the next one may be sent. Tasks leave in this order.
    virtual bool send(const Task& task) = 0;
    virtual uint64_t left() = 0;  // tasks of this operation that the peer or the network has taken over
    // Where order is free: the number in its queue of the task that comes next, once that is known. `guess` may be null, or has
    // begun with the task that is likely to come: then some of that may be received already, and if it is another one,
    // where the likely one goes may have been written to.
    virtual std::optional<uint32_t> arriving(Sink* guess);
    // What came cannot be what the peer sent.
    virtual void distrust() {}
    // Receives (some more of) the sink's task; true when it is full.
    virtual bool receive(Sink& sink) = 0;
    // Called after a round in which something was sent or received: a peer that looks can see it.
    virtual void flush() = 0;
    // Wakes the peer if it sleeps and has not been told of something. Waking is a system call, and takes the processor from
    // who has work: so it is not done after every round.
    virtual void wake() {}
    // Everything sent is out, the notice of the operation included.
    virtual bool quiet() { return true; }
    // Whether what is sent is copied to where the peer looks only once it agrees on the operation: then it need not be waited
    // for before.
    virtual bool sends_ahead() const { return false; }
    // Whether the peer is writing to this rank's memory just now, or was when it froze; and to memory of which kind.
    virtual Writing writing() const { return Writing::none; }
    virtual int writer() const { return 0; }  // the thread that does, or did
    // It is over: nothing more will be sent. False while the peer may still have to read what was.
    virtual bool shut_down() { return true; }
};

// The kernel no longer lets this process read the peer's memory: it is going down.
struct Unreadable {};

// In Notice::shared, beside the bits of the regions: the operation is worth a system call per piece; all that peers read or
// write is shared memory.
constexpr uint64_t kLarge = uint64_t{1} << 63;
constexpr uint64_t kExposed = uint64_t{1} << 62;
// So little goes through the ring even if it lies in shared memory: peers that read it there would have to say when they have.
constexpr size_t kFewBytes = size_t{1} << 10;

struct LocalOptions {
    int channel;
    int peer;  // its number on this machine
    bool can_read;  // cross-memory attach works, both ways
};

std::unique_ptr<Link> make_local_link(Host& host, const LocalOptions& options);
std::unique_ptr<Link> make_tcp_link(int socket, bool checksums);

}  // namespace weft::runtime
