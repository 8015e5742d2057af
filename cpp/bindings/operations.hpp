// The parts of an operation as Python starts it: its memory, the ring of the latest ones, the lock, and those that are repeated.
// Python half: src/weft/runtime/operation_queue.py.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/typing.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/names.hpp"
#include "runtime/executor.hpp"
#include "runtime/script.hpp"
#include "runtime/timing.hpp"

namespace weft {

namespace nb = nanobind;

using namespace runtime;

// A view of a Python object's memory, for as long as this lives.
class View {
public:
    explicit View(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    // None if the memory is not in one piece, or may not be written to.
    static std::optional<View> writable(nb::handle object) {
        View found;
        if (PyObject_GetBuffer(object.ptr(), &found.buffer_, PyBUF_WRITABLE) == 0) return found;
        PyErr_Clear();
        return std::nullopt;
    }
    ~View() { PyBuffer_Release(&buffer_); }  // does nothing for one that was moved from
    View(View&& other) noexcept : buffer_(std::exchange(other.buffer_, Py_buffer{})) {}
    View& operator=(View&&) = delete;
    std::byte* begin() const { return buffer_.len == 0 ? nullptr : static_cast<std::byte*>(buffer_.buf); }
    size_t size() const { return static_cast<size_t>(buffer_.len); }

private:
    View() = default;
    Py_buffer buffer_{};
};

// Describes to the executor where an operation's memory is.
inline Operation describe(const Executor& executor, const Script& script, uint64_t fingerprint,
                          std::byte* const (&begin)[kRegions], const size_t (&bytes)[kRegions], bool large, DType type,
                          ReduceOp op, int64_t timeout_ms, Clock::time_point began) {
    Operation operation{fingerprint, &script, {}, large ? kLarge : 0, {}, {}, timeout_ms, began};
    for (int r = 0; r < kRegions; ++r) {
        std::optional<uint64_t> shared = begin[r] == nullptr ? std::nullopt : executor.host().find(begin[r], bytes[r]);
        operation.memory.region[r] = begin[r];
        operation.bytes[r] = bytes[r];
        operation.address[r] = shared.value_or(reinterpret_cast<uint64_t>(begin[r]));
        if (shared) operation.shared |= uint64_t{1} << r;
    }
    bool few = std::max(bytes[0], bytes[1]) <= kFewBytes;
    if (!few && (script.exposed & ~operation.shared) == 0) operation.shared |= kExposed;
    size_t element = element_bytes(type);
    operation.memory.stage = begin[2] + static_cast<size_t>(script.scratch_elements) * element;
    operation.memory.dtype = type;
    operation.memory.op = op;
    operation.memory.element = element;
    return operation;
}

// Throws std::invalid_argument if the memory that Python hands over is smaller than what the script uses of it.
inline void check_lengths(const Script& script, DType type, const size_t (&bytes)[kRegions]) {
    constexpr const char* kNames[kRegions] = {"buffer", "output", "scratch"};
    auto scratch = static_cast<int>(Region::scratch);
    for (int region = 0; region < kRegions; ++region) {
        int64_t elements = script.reach.elements[region];
        if (region == scratch) elements = std::max(elements, script.scratch_elements + script.stage_elements);
        size_t needed = static_cast<size_t>(elements) * element_bytes(type);
        if (bytes[region] >= needed) continue;
        throw std::invalid_argument(std::string(kNames[region]) + ": the script needs " + std::to_string(needed) +
                                    " bytes, and this has " + std::to_string(bytes[region]));
    }
}

// An operation in place that is made again and again, on arrays that have the size and the type of the first.
class RepeatedOperation {
public:
    // `output`: the first byte of the array that is the output, and how many are.
    RepeatedOperation(std::shared_ptr<Executor> executor, std::shared_ptr<Script> script, uint64_t fingerprint,
                      nb::object scratch, size_t bytes, std::pair<size_t, size_t> output, bool large,
                      std::string_view dtype, std::string_view op)
        : executor_(std::move(executor)),
          script_(std::move(script)),
          fingerprint_(fingerprint),
          scratch_(scratch),
          bytes_(bytes),
          output_(output),
          large_(large),
          dtype_(dtype_named(dtype)),
          op_(op_named(op)) {
        auto [first, length] = output_;
        if (first > bytes_ || length > bytes_ - first) throw std::invalid_argument("output: not within the array");
        check_lengths(*script_, dtype_, {bytes_, length, scratch_.size()});
    }

    size_t bytes() const { return bytes_; }

    // Without the interpreter's lock.
    OperationResult run(std::byte* array, int64_t timeout_ms, Clock::time_point began) const {
        auto [first, length] = output_;
        std::byte* const begin[kRegions] = {array, length == 0 ? nullptr : array + first, scratch_.begin()};
        const size_t bytes[kRegions] = {bytes_, length, scratch_.size()};
        Operation operation =
            describe(*executor_, *script_, fingerprint_, begin, bytes, large_, dtype_, op_, timeout_ms, began);
        return executor_->run(operation);
    }

private:
    std::shared_ptr<Executor> executor_;
    std::shared_ptr<Script> script_;
    uint64_t fingerprint_;
    View scratch_;
    size_t bytes_;
    std::pair<size_t, size_t> output_;
    bool large_;
    DType dtype_;
    ReduceOp op_;
};

// An object that type checkers let pass as anything.
using Any = nb::typed<nb::object, nb::any>;

// A Python object that is kept for threads which do not hold the interpreter's lock; the last that lets it go takes the lock.
class Kept {
public:
    explicit Kept(nb::object object) : object_(std::move(object)) {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() {
        if (!nb::is_alive()) {
            (void)object_.release();  // the interpreter has ended, and its objects with it
            return;
        }
        nb::gil_scoped_acquire acquire;
        object_.reset();
    }
    nb::object object() const { return object_; }  // under the interpreter's lock

private:
    nb::object object_;
};

// The latest operations of a communicator, of which the last may be under way. What was prepared for them refers to nothing
// that has the ring, so Python's collector of cycles need not look into it. Also for threads without the interpreter's lock;
// nothing is let go of under the ring's own.
class OperationRing {
public:
    using Prepared = std::shared_ptr<Kept>;

    explicit OperationRing(size_t most) : most_(std::max<size_t>(1, most)) {}

    void begin(nb::object prepared) { begin(std::make_shared<Kept>(std::move(prepared)), Clock::now()); }
    void begin(Prepared prepared, Clock::time_point when) {
        Prepared oldest, before;
        std::scoped_lock lock(mutex_);
        if (ring_.size() == most_) {
            oldest = std::move(ring_.front().prepared);
            ring_.pop_front();
        }
        before = std::exchange(latest_, prepared);
        ring_.push_back({++count_, std::move(prepared), when, std::nullopt});
    }

    void end() {
        std::scoped_lock lock(mutex_);
        if (!ring_.empty()) ring_.back().ended = Clock::now();
    }

    // Forgets those after the first `count`: they are going to be repeated.
    void resume(uint64_t count) {
        std::vector<Prepared> forgotten;
        std::scoped_lock lock(mutex_);
        count_ = count;
        while (!ring_.empty() && ring_.back().number > count) {
            forgotten.push_back(std::move(ring_.back().prepared));
            ring_.pop_back();
        }
    }

    uint64_t count() const {
        std::scoped_lock lock(mutex_);
        return count_;
    }

    Any latest() const {
        Prepared found;
        {
            std::scoped_lock lock(mutex_);
            found = latest_;
        }
        return found ? found->object() : nb::object(nb::none());
    }

    void set_latest(nb::object prepared) {
        Prepared made = prepared.is_none() ? nullptr : std::make_shared<Kept>(std::move(prepared));
        std::scoped_lock lock(mutex_);
        latest_.swap(made);  // what was there before goes after the lock
    }

    nb::typed<nb::list, nb::any> entries() const {
        std::vector<Entry> entries;
        {
            std::scoped_lock lock(mutex_);
            entries.assign(ring_.begin(), ring_.end());
        }
        nb::list found;
        for (const Entry& entry : entries) {
            nb::object ended = entry.ended ? nb::object(nb::float_(seconds(*entry.ended))) : nb::none();
            found.append(nb::make_tuple(entry.number, entry.prepared->object(), seconds(entry.began), ended));
        }
        return found;
    }

private:
    // As time.monotonic() counts them.
    static double seconds(Clock::time_point when) {
        return std::chrono::duration<double>(when.time_since_epoch()).count();
    }

    struct Entry {
        uint64_t number;
        Prepared prepared;
        Clock::time_point began;
        std::optional<Clock::time_point> ended;
    };
    mutable std::mutex mutex_;
    size_t most_;
    uint64_t count_ = 0;
    std::deque<Entry> ring_;
    Prepared latest_;
};

// 0 for what is no number of seconds to wait, which the long way refuses.
inline int64_t milliseconds(nb::handle wait_s) {
    constexpr double kLongestWait = 1e9;
    double seconds = 0;
    if (PyFloat_CheckExact(wait_s.ptr())) {
        seconds = PyFloat_AsDouble(wait_s.ptr());
    } else if (PyLong_CheckExact(wait_s.ptr())) {
        seconds = PyLong_AsDouble(wait_s.ptr());
        if (seconds == -1.0 && PyErr_Occurred() != nullptr) PyErr_Clear();
    }
    if (!(seconds > 0 && seconds < kLongestWait)) return 0;
    return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000));
}

// What threading.Lock is, for operations: to call that one from here takes a tenth of what a small operation takes.
class OperationLock {
public:
    OperationLock() : lock_(PyThread_allocate_lock()) {
        if (lock_ == nullptr) throw std::bad_alloc();
    }
    OperationLock(const OperationLock&) = delete;
    OperationLock& operator=(const OperationLock&) = delete;
    ~OperationLock() { PyThread_free_lock(lock_); }

    // All but this one and `release` are called under the interpreter's lock.
    void acquire_without_python() {
        PyThread_acquire_lock(lock_, WAIT_LOCK);
        locked_ = true;
    }

    bool try_acquire() {
        if (PyThread_acquire_lock(lock_, NOWAIT_LOCK) == 0) return false;
        locked_ = true;
        return true;
    }

    // Waits for at most so many seconds, or without end if they are negative; handlers of signals run meanwhile.
    bool acquire(double timeout) {
        if (try_acquire()) return true;
        Clock::time_point end = Clock::now();
        if (timeout >= 0) end += std::chrono::microseconds(std::llround(std::min(timeout, kLongestS) * 1e6));
        for (;;) {
            int64_t left = -1;
            if (timeout >= 0) {
                auto rest = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now());
                left = std::max<int64_t>(0, rest.count());
            }
            PyLockStatus status;
            {
                nb::gil_scoped_release release;
                status = PyThread_acquire_lock_timed(lock_, left, 1);
            }
            if (status == PY_LOCK_FAILURE) return false;
            if (status == PY_LOCK_ACQUIRED) {
                locked_ = true;
                return true;
            }
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
        }
    }

    void release() {  // also without the interpreter's lock
        if (!locked_) throw std::runtime_error("release of an operation lock that nobody holds");
        locked_ = false;
        PyThread_release_lock(lock_);
    }

    bool locked() const { return locked_; }

private:
    static constexpr double kLongestS = 1e9;

    PyThread_type_lock lock_;
    std::atomic<bool> locked_ = false;
};

// All-reduces in place that ran before, repeated without a line of Python in between: where arrays are small, that takes longer
// than the operation. Everything up to the operation itself happens under the interpreter's lock.
class RepeatedOperations {
public:
    // `lock` is held during each operation.
    RepeatedOperations(std::shared_ptr<OperationRing> ring, nb::handle array_type, std::shared_ptr<OperationLock> lock)
        : ring_(std::move(ring)), array_type_(nb::borrow(array_type)), lock_(std::move(lock)) {}

    // Keeps an operation for later arrays of its size and of this type, which are reduced by this op and called of this kind.
    void learn(nb::object prepared, std::shared_ptr<RepeatedOperation> operation, nb::object dtype, nb::str op,
               nb::str kind) {
        std::vector<Known>& some = known_[operation->bytes()];
        // Types that are equal but not the same object are rare: too many of them are not worth a search.
        if (some.size() < kMostAlike) {
            some.push_back({std::make_shared<Kept>(std::move(prepared)), operation, dtype, op, kind});
        }
    }

    void forget() {
        ++forgotten_;
        known_.clear();
    }

    // How often everything was forgotten: what was prepared before is of no use.
    uint64_t forgotten() const { return forgotten_; }

    bool runs_in_this_thread() const { return thread_ == PyThread_get_thread_ident(); }

    // Runs an operation once the lock is free, without the interpreter's; nothing if all was forgotten since `forgotten`.
    template <typename Run>
    std::optional<OperationResult> run_unless(uint64_t forgotten, const std::shared_ptr<Kept>& prepared, Run run) {
        lock_->acquire_without_python();
        Held held(*this);
        if (forgotten_ != forgotten) return std::nullopt;
        if (!prepared) return run(Clock::now());
        Clock::time_point began = Clock::now();
        ring_->begin(prepared, began);
        OperationResult ending = run(began);
        if (ending.status == Status::done) ring_->end();
        return ending;
    }

    // True when it is done, False if nothing has happened because it takes the long way, and how it ended otherwise.
    Any run(nb::handle array, nb::handle op, nb::handle kind, nb::handle wait_s) {
        if (array.type().ptr() != array_type_.ptr()) return answer(false);
        int64_t timeout_ms = milliseconds(wait_s);
        if (timeout_ms <= 0) return answer(false);
        std::optional<View> view = View::writable(array);
        if (!view) return answer(false);
        const Known* known = find(view->size(), nb::getattr(array, dtype_name_), op, kind);
        if (known == nullptr) return answer(false);
        // Copies: while this operation runs, another thread may forget what is known.
        std::shared_ptr<RepeatedOperation> operation = known->operation;
        std::shared_ptr<Kept> prepared = known->prepared;
        if (!lock_->try_acquire()) return answer(false);
        Held held(*this);
        Clock::time_point began = Clock::now();
        ring_->begin(std::move(prepared), began);
        OperationResult ending;
        {
            nb::gil_scoped_release release;
            ending = operation->run(view->begin(), timeout_ms, began);
        }
        if (ending.status != Status::done) return nb::cast(ending);
        ring_->end();
        return answer(true);
    }

private:
    static constexpr size_t kMostAlike = 16;

    struct Known {
        std::shared_ptr<Kept> prepared;
        std::shared_ptr<RepeatedOperation> operation;
        nb::object dtype;
        nb::str op, kind;
    };

    // Releases the lock, which this thread has taken.
    struct Held {
        explicit Held(RepeatedOperations& of) : of(of) { of.thread_ = PyThread_get_thread_ident(); }
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held() {
            of.thread_ = 0;
            of.lock_->release();
        }
        RepeatedOperations& of;
    };

    static Any answer(bool done) { return nb::object(nb::bool_(done)); }

    static bool same(nb::handle one, nb::handle other) {
        return one.is(other) || (PyUnicode_CheckExact(one.ptr()) && PyUnicode_Compare(one.ptr(), other.ptr()) == 0);
    }

    const Known* find(size_t bytes, nb::handle dtype, nb::handle op, nb::handle kind) const {
        auto some = known_.find(bytes);
        if (some == known_.end()) return nullptr;
        for (const Known& known : some->second) {
            if (known.dtype.is(dtype) && same(op, known.op) && same(kind, known.kind)) return &known;
        }
        return nullptr;
    }

    std::shared_ptr<OperationRing> ring_;
    nb::object array_type_, dtype_name_ = nb::str("dtype");
    std::shared_ptr<OperationLock> lock_;
    std::atomic<uint64_t> forgotten_ = 0;
    std::atomic<unsigned long> thread_ = 0;  // the one that runs an operation, which Python never calls 0
    std::unordered_map<size_t, std::vector<Known>> known_;  // by bytes of the array
};

}  // namespace weft
