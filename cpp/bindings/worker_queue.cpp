// The queue of a worker, whose thread repeats operations without Python: where buckets are small, waking the interpreter for
// each takes longer than the operation.
// Python half: src/weft/runtime/handles.py and src/weft/runtime/operation_queue.py.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>

#include <condition_variable>

#include "bindings/module.hpp"
#include "bindings/operations.hpp"
#include "runtime/kernels.hpp"

namespace weft {

namespace {

// A lock that is closed while a call is under way; handlers of signals run in the thread that waits for it.
class Gate {
public:
    Gate() : lock_(PyThread_allocate_lock()) {
        if (lock_ == nullptr) throw std::bad_alloc();
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { PyThread_free_lock(lock_); }

    void close() { PyThread_acquire_lock(lock_, WAIT_LOCK); }  // whoever waits holds it for a moment only
    void open() { PyThread_release_lock(lock_); }

    // Under the interpreter's lock, which others get meanwhile.
    void wait() {
        for (;;) {
            PyLockStatus status;
            {
                nb::gil_scoped_release release;
                status = PyThread_acquire_lock_timed(lock_, -1, 1);
                if (status == PY_LOCK_ACQUIRED) PyThread_release_lock(lock_);
            }
            if (status == PY_LOCK_ACQUIRED) return;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
        }
    }

private:
    PyThread_type_lock lock_;
};

// What averages are divided by, and where they lie in the array.
struct Division {
    size_t first = 0, bytes = 0;
    int64_t by = 1;
    DType dtype = DType::f32;
};

// What Python does where the short way ends.
struct LongWay {
    nb::object run;  // the whole call
    nb::object fail;  // raises why it has failed, given how it ended and the seconds it had
    nb::object check;  // refuses a thread that would wait for ever
};

// A call that is made again and again, on one array. Its last owner may be a thread without the interpreter's lock.
class Call {
public:
    Call(std::shared_ptr<RepeatedOperations> known, std::shared_ptr<RepeatedOperation> operation, nb::object prepared,
         nb::handle array, const Division& division, LongWay long_way)
        : known_(std::move(known)),
          operation_(std::move(operation)),
          forgotten_(known_->forgotten()),
          division_(division),
          python_(std::make_unique<Python>(View::writable(array), std::move(long_way), nb::none())) {
        if (operation_) prepared_ = std::make_shared<Kept>(std::move(prepared));
        if (!python_->array) throw std::invalid_argument("array: it is not in one piece, or read-only");
        size_t bytes = python_->array->size();
        if (operation_ && operation_->bytes() != bytes) throw std::invalid_argument("array: of another size");
        if (division.first > bytes || division.bytes > bytes - division.first || division.by < 1) {
            throw std::invalid_argument("division: not within the array");
        }
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
        if (!nb::is_alive()) {
            (void)python_.release();  // the interpreter has ended, and its objects with it
            return;
        }
        nb::gil_scoped_acquire acquire;
        python_.reset();
    }

    bool usable() const { return forgotten_ == known_->forgotten(); }
    bool done() const { return done_; }

    void begin(int64_t timeout_ms, nb::object wait_s) {
        if (!done_) throw std::logic_error("a call was started again while it is under way");
        timeout_ms_ = timeout_ms;
        python_->wait_s = std::move(wait_s);
        python_->error = nb::none();
        gate_.close();
        done_ = false;
    }

    // Without Python; false if it is for Python to go on, with `task`.
    bool run() {
        std::byte* array = python_->array->begin();
        try {
            ending_ = known_->run_unless(forgotten_, prepared_, [&](Clock::time_point began) {
                OperationResult ending;
                if (operation_) ending = operation_->run(array, timeout_ms_, began);
                if (ending.status != Status::done) return ending;
                size_t elements = division_.bytes / element_bytes(division_.dtype);
                if (division_.by > 1) divide(division_.dtype, array + division_.first, elements, division_.by);
                return ending;
            });
        } catch (const std::bad_alloc&) {
            ending_ = std::nullopt;
            lacks_memory_ = true;
        }
        return ending_ && ending_->status == Status::done;
    }

    void finish() {
        done_ = true;
        gate_.open();
    }

    // What Python calls to go on, after `run` was false.
    nb::object rest() const {
        if (!ending_ && !lacks_memory_) return python_->long_way.run;
        nb::object ending = ending_ ? nb::cast(*ending_) : nb::object(nb::none());
        return nb::module_::import_("functools").attr("partial")(python_->long_way.fail, ending, python_->wait_s);
    }

    void complete(nb::object error) {
        if (done_) return;
        python_->error = std::move(error);
        finish();
    }

    Any error() const { return python_->error; }

    void wait() {
        if (!done_) {
            python_->long_way.check();
            gate_.wait();
        }
        if (python_->error.is_none()) return;
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(python_->error.ptr())), python_->error.ptr());
        throw nb::python_error();
    }

private:
    struct Python {
        std::optional<View> array;
        LongWay long_way;
        nb::object error, wait_s;
    };

    std::shared_ptr<RepeatedOperations> known_;
    std::shared_ptr<RepeatedOperation> operation_;  // none where there is one rank
    uint64_t forgotten_;
    Division division_;
    std::shared_ptr<Kept> prepared_;
    std::unique_ptr<Python> python_;
    Gate gate_;
    std::optional<OperationResult> ending_;
    bool lacks_memory_ = false;
    int64_t timeout_ms_ = 0;
    std::atomic<bool> done_ = true;
};

class WorkerQueue;

// A call as Python sees it. Both a call that can be started and the handle of the latest start.
struct RepeatedCall {
    std::shared_ptr<Call> call;
    std::shared_ptr<WorkerQueue> queue;

    bool start(nb::handle wait_s) const;
};

// Python's tasks and repeated calls, in the order in which they were put. Python's lock is never waited for under the mutex.
class WorkerQueue {
public:
    void put(nb::object task) {
        ++pending_;
        push({std::move(task), {}, {}});
    }

    // False if it has to be put as a task of Python's: nobody serves the queue, or it has ended.
    bool start(const std::shared_ptr<Call>& call, const std::shared_ptr<WorkerQueue>& self, int64_t timeout_ms,
               nb::handle wait_s) {
        if (!served_ || ended_ || !call->usable()) return false;
        call->begin(timeout_ms, nb::borrow(wait_s));
        ++pending_;
        push({{}, call, self});
        return true;
    }

    void settle() { --pending_; }
    int64_t pending() const { return pending_; }

    // Until `release` a thread that sleeps is not woken: to wake it takes as long as to queue several calls.
    void hold() {
        std::scoped_lock lock(mutex_);
        held_ = true;
    }

    void release() {
        bool wake;
        {
            std::scoped_lock lock(mutex_);
            held_ = false;
            wake = !entries_.empty() && std::exchange(sleeps_, false);
        }
        if (wake) awake_.notify_one();
    }

    // Lets the thread that serves the queue return after what was put before; nothing can be put any more.
    void end() {
        ended_ = true;
        release();
        push({});
    }

    // The next task of Python's and its handle, or None at the end; calls in between are carried out here.
    nb::object get() {
        served_ = true;
        Entry entry;
        {
            nb::gil_scoped_release release;
            do {
                entry = pop();
            } while (entry.call && carry_out(*entry.call));
        }
        if (!entry.call) return entry.task.is_valid() ? std::move(entry.task) : nb::object(nb::none());
        return nb::make_tuple(entry.call->rest(), RepeatedCall{entry.call, entry.self});
    }

private:
    struct Entry {
        nb::object task;
        std::shared_ptr<Call> call;
        std::shared_ptr<WorkerQueue> self;
    };

    void push(Entry entry) {
        bool wake;
        {
            std::scoped_lock lock(mutex_);
            entries_.push_back(std::move(entry));
            wake = !held_ && std::exchange(sleeps_, false);
        }
        if (wake) awake_.notify_one();
    }

    Entry pop() {
        std::unique_lock lock(mutex_);
        while (entries_.empty()) {
            sleeps_ = true;
            awake_.wait(lock);
        }
        sleeps_ = false;
        Entry entry = std::move(entries_.front());
        entries_.pop_front();
        return entry;
    }

    bool carry_out(Call& call) {
        if (!call.run()) return false;
        settle();  // before anybody who waits goes on
        call.finish();
        return true;
    }

    std::mutex mutex_;
    std::condition_variable awake_;
    std::deque<Entry> entries_;
    bool sleeps_ = false, held_ = false;
    std::atomic<int64_t> pending_ = 0;
    bool served_ = false, ended_ = false;  // under the interpreter's lock
};

bool RepeatedCall::start(nb::handle wait_s) const {
    int64_t timeout_ms = milliseconds(wait_s);
    return timeout_ms > 0 && queue->start(call, queue, timeout_ms, wait_s);
}

}  // namespace

void bind_worker_queue(nb::module_& m) {
    nb::class_<WorkerQueue>(m, "WorkerQueue", "What a worker has to do, in order.")
        .def(nb::init<>())
        .def("put", &WorkerQueue::put, nb::arg("task"), "Queue a task, which `get` returns.")
        .def("get", &WorkerQueue::get, nb::sig("def get(self) -> typing.Any"),
             "The next task, or a function and the call that it completes; None at the end. Repeated calls that are "
             "queued before it are carried out, without the interpreter's lock.")
        .def("settle", &WorkerQueue::settle, "Note that what `get` has returned is over.")
        .def("hold", &WorkerQueue::hold, "Let a thread that sleeps in `get` sleep until `release`.")
        .def("release", &WorkerQueue::release, "Wake it, if something was queued meanwhile.")
        .def("end", &WorkerQueue::end, "Have `get` return None after what was queued before.")
        .def_prop_ro("pending", &WorkerQueue::pending, "Tasks and calls that are queued or under way.");
    nb::class_<RepeatedCall>(m, "RepeatedCall",
                             "A call on one array that is made again and again, and the handle of its latest start.")
        .def(
            "__init__",
            [](RepeatedCall* self, std::shared_ptr<WorkerQueue> queue, std::shared_ptr<RepeatedOperations> known,
               std::shared_ptr<RepeatedOperation> operation, nb::object prepared, nb::handle array,
               std::string_view dtype, std::pair<size_t, size_t> divided, int64_t by, nb::object run, nb::object fail,
               nb::object check) {
                Division division{divided.first, divided.second, by, dtype_named(dtype)};
                LongWay long_way{std::move(run), std::move(fail), std::move(check)};
                new (self)
                    RepeatedCall{std::make_shared<Call>(std::move(known), std::move(operation), std::move(prepared),
                                                        array, division, std::move(long_way)),
                                 std::move(queue)};
            },
            nb::arg("queue"), nb::arg("known"), nb::arg("operation").none(), nb::arg("prepared").none(),
            nb::arg("array"), nb::arg("dtype"), nb::arg("divided"), nb::arg("by"), nb::arg("run"), nb::arg("fail"),
            nb::arg("check"))
        .def("start", &RepeatedCall::start, nb::arg("wait_s"),
             "Queue it; False if nothing has happened because it takes the long way.")
        .def_prop_ro(
            "usable", [](const RepeatedCall& self) { return self.call->usable(); },
            "Whether nothing that it was made for has changed since.")
        .def(
            "wait", [](const RepeatedCall& self) { self.call->wait(); }, "Return once it is over; raise its error.")
        .def(
            "is_done", [](const RepeatedCall& self) { return self.call->done(); },
            "Whether `wait` would return at once.")
        .def_prop_ro(
            "error", [](const RepeatedCall& self) { return self.call->error(); },
            "Its error; None if it has succeeded, or is not over yet.")
        .def(
            "complete",
            [](const RepeatedCall& self, nb::handle, nb::object error) { self.call->complete(std::move(error)); },
            nb::arg("result") = nb::none(), nb::arg("error") = nb::none(),
            "Complete it after the long way, without a result or with an error.");
}

}  // namespace weft
