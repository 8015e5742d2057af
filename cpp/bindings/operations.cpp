// Operations as Python starts them: the executor, the ring of the latest ones, and the short way for those that are repeated.
// Python half: src/weft/runtime/operation_queue.py and src/weft/runtime/engines/native_engine.py.
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "bindings/names.hpp"
#include "runtime/executor.hpp"
#include "runtime/script.hpp"
#include "runtime/timing.hpp"

namespace weft {

namespace nb = nanobind;

namespace {

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
Operation describe(const Executor& executor, const Script& script, uint64_t fingerprint,
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
void check_lengths(const Script& script, DType type, const size_t (&bytes)[kRegions]) {
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

OperationResult run_py(Executor& executor, const Script& script, uint64_t fingerprint, nb::handle buffer,
                       nb::handle output, nb::handle scratch, bool large, std::string_view dtype, std::string_view op,
                       int64_t timeout_ms) {
    DType type = dtype_named(dtype);
    View views[kRegions] = {View(buffer), View(output), View(scratch)};
    std::byte* const begin[kRegions] = {views[0].begin(), views[1].begin(), views[2].begin()};
    const size_t bytes[kRegions] = {views[0].size(), views[1].size(), views[2].size()};
    check_lengths(script, type, bytes);
    Operation operation =
        describe(executor, script, fingerprint, begin, bytes, large, type, op_named(op), timeout_ms, Clock::now());
    nb::gil_scoped_release release;
    return executor.run(operation);
}

// An operation in place that is made again and again, on arrays that have the size and the type of the first.
class RepeatedOperation {
public:
    RepeatedOperation(std::shared_ptr<Executor> executor, std::shared_ptr<Script> script, uint64_t fingerprint,
                      nb::object scratch, size_t bytes, bool large, std::string_view dtype, std::string_view op)
        : executor_(std::move(executor)),
          script_(std::move(script)),
          fingerprint_(fingerprint),
          scratch_(scratch),
          bytes_(bytes),
          large_(large),
          dtype_(dtype_named(dtype)),
          op_(op_named(op)) {
        check_lengths(*script_, dtype_, {bytes_, bytes_, scratch_.size()});
    }

    size_t bytes() const { return bytes_; }

    OperationResult run(const View& array, int64_t timeout_ms, Clock::time_point began) const {
        std::byte* const begin[kRegions] = {array.begin(), array.begin(), scratch_.begin()};
        const size_t bytes[kRegions] = {bytes_, bytes_, scratch_.size()};
        Operation operation =
            describe(*executor_, *script_, fingerprint_, begin, bytes, large_, dtype_, op_, timeout_ms, began);
        nb::gil_scoped_release release;
        return executor_->run(operation);
    }

private:
    std::shared_ptr<Executor> executor_;
    std::shared_ptr<Script> script_;
    uint64_t fingerprint_;
    View scratch_;
    size_t bytes_;
    bool large_;
    DType dtype_;
    ReduceOp op_;
};

// An object that type checkers let pass as anything.
using Any = nb::typed<nb::object, nb::any>;

// The latest operations of a communicator, of which the last may be under way. What was prepared for them refers to nothing
// that has the ring, so Python's collector of cycles need not look into it.
class OperationRing {
public:
    explicit OperationRing(size_t most) : most_(std::max<size_t>(1, most)) {}

    void begin(nb::object prepared) { begin(std::move(prepared), Clock::now()); }
    void begin(nb::object prepared, Clock::time_point when) {
        if (ring_.size() == most_) ring_.pop_front();
        latest_ = prepared;
        ring_.push_back({++count_, std::move(prepared), when, std::nullopt});
    }

    void end() {
        if (!ring_.empty()) ring_.back().ended = Clock::now();
    }

    // Forgets those after the first `count`: they are going to be repeated.
    void resume(uint64_t count) {
        count_ = count;
        while (!ring_.empty() && ring_.back().number > count) ring_.pop_back();
    }

    uint64_t count() const { return count_; }
    Any latest() const { return latest_; }
    void set_latest(nb::object prepared) { latest_ = std::move(prepared); }

    nb::typed<nb::list, nb::any> entries() const {
        nb::list found;
        for (const Entry& entry : ring_) {
            nb::object ended = entry.ended ? nb::object(nb::float_(seconds(*entry.ended))) : nb::none();
            found.append(nb::make_tuple(entry.number, entry.prepared, seconds(entry.began), ended));
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
        nb::object prepared;
        Clock::time_point began;
        std::optional<Clock::time_point> ended;
    };
    size_t most_;
    uint64_t count_ = 0;
    std::deque<Entry> ring_;
    nb::object latest_ = nb::none();
};

// What threading.Lock is, for operations: to call that one from here takes a tenth of what a small operation takes.
class OperationLock {
public:
    OperationLock() : lock_(PyThread_allocate_lock()) {
        if (lock_ == nullptr) throw std::bad_alloc();
    }
    OperationLock(const OperationLock&) = delete;
    OperationLock& operator=(const OperationLock&) = delete;
    ~OperationLock() { PyThread_free_lock(lock_); }

    // All of these are called under the interpreter's lock.
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

    void release() {
        if (!locked_) throw std::runtime_error("release of an operation lock that nobody holds");
        locked_ = false;
        PyThread_release_lock(lock_);
    }

    bool locked() const { return locked_; }

private:
    static constexpr double kLongestS = 1e9;

    PyThread_type_lock lock_;
    bool locked_ = false;
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
        if (some.size() < kMostAlike) some.push_back({prepared, operation, dtype, op, kind});
    }

    void forget() { known_.clear(); }

    bool runs_in_this_thread() const { return thread_ == PyThread_get_thread_ident(); }

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
        nb::object prepared = known->prepared;
        Held held(*this);
        if (!held.taken) return answer(false);
        Clock::time_point began = Clock::now();
        ring_->begin(std::move(prepared), began);
        thread_ = PyThread_get_thread_ident();
        OperationResult ending = operation->run(*view, timeout_ms, began);
        if (ending.status != Status::done) return nb::cast(ending);
        ring_->end();
        return answer(true);
    }

private:
    static constexpr size_t kMostAlike = 16;
    static constexpr double kLongestWait = 1e9;

    struct Known {
        nb::object prepared;
        std::shared_ptr<RepeatedOperation> operation;
        nb::object dtype;
        nb::str op, kind;
    };

    // Holds the lock, if nobody else does.
    struct Held {
        explicit Held(RepeatedOperations& of) : of(of), taken(of.lock_->try_acquire()) {}
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held() {
            if (!taken) return;
            of.thread_ = 0;
            of.lock_->release();
        }
        RepeatedOperations& of;
        bool taken;
    };

    static Any answer(bool done) { return nb::object(nb::bool_(done)); }

    static bool same(nb::handle one, nb::handle other) {
        return one.is(other) || (PyUnicode_CheckExact(one.ptr()) && PyUnicode_Compare(one.ptr(), other.ptr()) == 0);
    }

    // 0 for what is no number of seconds to wait, which the long way refuses.
    static int64_t milliseconds(nb::handle wait_s) {
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
    unsigned long thread_ = 0;  // the one that runs an operation, which Python never calls 0
    std::unordered_map<size_t, std::vector<Known>> known_;  // by bytes of the array
};

}  // namespace

void bind_operations(nb::module_& m) {
    nb::class_<Executor>(m, "Executor", "Runs scripts over links to the other ranks.")
        .def(nb::init<std::shared_ptr<Host>, int, uint64_t, int32_t, std::vector<int32_t>, std::vector<int32_t>,
                      std::vector<std::vector<int32_t>>, const std::vector<uint8_t>&, const std::vector<uint8_t>&>(),
             nb::arg("host"), nb::arg("channel"), nb::arg("communicator"), nb::arg("rank"), nb::arg("job"),
             nb::arg("local"), nb::arg("sockets"), nb::arg("can_read"), nb::arg("checksums"))
        .def("on_wait", &Executor::on_wait, nb::arg("tell"),
             "Have a function called when an operation has waited for long, or for a rank that is silent.")
        .def_prop_ro("waiting", &Executor::waiting, "What the operation under way waits for; also from other threads.")
        .def("close", &Executor::close, "Leave on purpose; other channels of the host go on.")
        .def("cancel", &Executor::cancel, "End the operation under way, from any thread; no other can follow.")
        .def_prop_ro("sequence", &Executor::sequence)
        .def("run", &run_py, nb::arg("script"), nb::arg("fingerprint"), nb::arg("buffer"), nb::arg("output"),
             nb::arg("scratch"), nb::arg("large"), nb::arg("dtype"), nb::arg("op"), nb::arg("timeout_ms"),
             "Run one operation; never raises for what happens to peers, but says so.");
    nb::class_<RepeatedOperation>(m, "RepeatedOperation", "An operation in place that is made again and again.")
        .def(nb::init<std::shared_ptr<Executor>, std::shared_ptr<Script>, uint64_t, nb::object, size_t, bool,
                      std::string_view, std::string_view>(),
             nb::arg("executor"), nb::arg("script"), nb::arg("fingerprint"), nb::arg("scratch"), nb::arg("bytes"),
             nb::arg("large"), nb::arg("dtype"), nb::arg("op"));
    nb::class_<OperationRing>(m, "OperationRing", "The latest operations of a communicator.")
        .def(nb::init<size_t>(), nb::arg("most"))
        .def("begin", nb::overload_cast<nb::object>(&OperationRing::begin), nb::arg("prepared"),
             "Note that an operation begins.")
        .def("end", &OperationRing::end, "Note that the latest is over.")
        .def("resume", &OperationRing::resume, nb::arg("count"), "Forget those after the first `count`.")
        .def_prop_ro("count", &OperationRing::count, "How many have begun.")
        .def_prop_rw("latest", &OperationRing::latest, &OperationRing::set_latest, nb::arg("prepared").none(),
                     "What was prepared for the latest operation, or None.")
        .def_prop_ro("entries", &OperationRing::entries,
                     "Of each, oldest first: its number, what was prepared for it, when it began and when it ended, in "
                     "seconds as time.monotonic() counts them, or None while it is under way.");
    nb::class_<OperationLock>(m, "OperationLock", "A lock that is held during each operation, as threading.Lock is.")
        .def(nb::init<>())
        .def("acquire", &OperationLock::acquire, nb::arg("timeout") = -1.0,
             "Wait for at most so many seconds, or without end; False if another thread still has it.")
        .def("release", &OperationLock::release)
        .def("locked", &OperationLock::locked)
        .def("__enter__", [](OperationLock& lock) { lock.acquire(-1); })
        .def(
            "__exit__", [](OperationLock& lock, const nb::args&) { lock.release(); },
            nb::sig("def __exit__(self, *args: object) -> None"));
    nb::class_<RepeatedOperations>(m, "RepeatedOperations",
                                   "All-reduces in place that ran before, repeated without Python in between.")
        .def(nb::init<std::shared_ptr<OperationRing>, nb::handle, std::shared_ptr<OperationLock>>(), nb::arg("ring"),
             nb::arg("array_type"), nb::arg("lock"))
        .def("learn", &RepeatedOperations::learn, nb::arg("prepared"), nb::arg("operation"), nb::arg("dtype"),
             nb::arg("op"), nb::arg("kind"), "Keep an operation for arrays of its size and of this type.")
        .def("forget", &RepeatedOperations::forget, "Let all operations take the long way again.")
        .def_prop_ro("runs_in_this_thread", &RepeatedOperations::runs_in_this_thread,
                     "Whether the calling thread is within one, of which a handler can be the reason.")
        .def("run", &RepeatedOperations::run, nb::arg("array").none(), nb::arg("op").none(), nb::arg("kind").none(),
             nb::arg("wait_s").none(), "True: done. False: it has to take the long way. Else how it ended.");
}

}  // namespace weft
