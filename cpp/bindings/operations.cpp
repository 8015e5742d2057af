// Operations as Python starts them: the executor, the ring of the latest ones, and the short way for those that are repeated.
// Python half: src/weft/runtime/operation_queue.py and src/weft/runtime/engines/native_engine.py.
#include "bindings/operations.hpp"

#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/module.hpp"

namespace weft {

namespace {

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
        .def(nb::init<std::shared_ptr<Executor>, std::shared_ptr<Script>, uint64_t, nb::object, size_t,
                      std::pair<size_t, size_t>, bool, std::string_view, std::string_view>(),
             nb::arg("executor"), nb::arg("script"), nb::arg("fingerprint"), nb::arg("scratch"), nb::arg("bytes"),
             nb::arg("output"), nb::arg("large"), nb::arg("dtype"), nb::arg("op"));
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
    bind_worker_queue(m);
}

}  // namespace weft
