// The data plane as Python sees it. src/weft/runtime has checked types and sizes; memory crosses as plain addresses,
// and the caller keeps it alive.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "arrays.hpp"
#include "bind.hpp"
#include "bind_names.hpp"
#include "runtime/executor.hpp"
#include "runtime/heartbeats.hpp"
#include "runtime/host.hpp"
#include "runtime/script.hpp"
#include "table.hpp"

namespace weft {
namespace {

using namespace runtime;

std::shared_ptr<Script> write_script_py(const Table& table, int32_t ranks, int32_t slots, In<int64_t> start, bool pairs,
                                        int64_t segment, int32_t rank, int64_t max_segments) {
    std::vector<int64_t> sizes(start.shape(0) - 1);
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = start.data()[i + 1] - start.data()[i];
    nb::gil_scoped_release release;
    Layout layout{view(start), ranks, pairs};
    return std::make_shared<Script>(
        write_script(table.rows(), {sizes, segment, ranks, slots, max_segments}, layout, rank));
}

std::shared_ptr<Script> write_exchange_py(const std::vector<std::tuple<int32_t, int64_t, int64_t, uint64_t>>& dealings,
                                          int64_t segment) {
    if (segment < 1) throw std::invalid_argument("segment");
    std::vector<Dealing> all;
    for (const auto& [peer, sends, receives, code] : dealings) all.push_back({peer, sends, receives, code});
    return std::make_shared<Script>(write_exchange(all, segment));
}

Ending run_py(Executor& executor, const Script& script, uint64_t fingerprint, const std::vector<uint64_t>& memory,
              const std::vector<uint64_t>& address, uint64_t shared, bool large, const std::string& dtype,
              const std::string& op, int64_t timeout_ms) {
    if (memory.size() != kRegions + 1 || address.size() != kRegions) throw std::invalid_argument("regions");
    DType type = dtype_named(dtype);
    Operation operation{fingerprint, &script, {}, shared | (large ? kLarge : 0), {}, timeout_ms};
    for (int r = 0; r < kRegions; ++r) {
        operation.memory.region[r] = reinterpret_cast<std::byte*>(memory[r]);
        operation.address[r] = address[r];
    }
    operation.memory.stage = reinterpret_cast<std::byte*>(memory[kRegions]);
    operation.memory.dtype = type;
    operation.memory.op = op_named(op);
    operation.memory.element = element_bytes(type);
    nb::gil_scoped_release release;
    return executor.run(operation);
}

}  // namespace

void bind_runtime(nb::module_& m) {
    nb::class_<Host>(m, "Host", "This rank's part of the memory that the ranks of one machine share.")
        .def(nb::init<int, int, size_t>(), nb::arg("rank"), nb::arg("ranks"), nb::arg("arena_bytes"))
        .def_prop_ro("descriptor", &Host::descriptor)
        .def_prop_ro("arena_bytes", &Host::arena_bytes)
        .def_prop_ro("arena_address",
                     [](const Host& host) { return reinterpret_cast<uint64_t>(host.arena(host.rank())); })
        .def_prop_ro("arena_offset",
                     [](const Host& host) {
                         return static_cast<uint64_t>(host.arena(host.rank()) - host.memory(host.rank()));
                     })
        .def("attach", &Host::attach, nb::arg("rank"), nb::arg("pid"), nb::arg("descriptor"),
             "Map another rank's memory.")
        .def("can_read", &Host::can_read, nb::arg("rank"), nb::arg("address"), nb::arg("expected"),
             "Whether the kernel lets this process read another rank's memory.")
        .def("start_watch", &Host::start_watch, nb::arg("frozen_after_ms"), nb::arg("rank_of"), nb::arg("job_ranks"),
             "Begin to beat and to listen.")
        .def("reset", &Host::reset, nb::arg("channel"), "Make a channel as new.")
        .def("close", &Host::close, nb::call_guard<nb::gil_scoped_release>(), "Leave on purpose.");
    nb::class_<Heartbeats>(m, "Heartbeats", "Beats between this rank and rank 0, over sockets that stay the caller's.")
        .def(nb::init<std::shared_ptr<Host>, const std::vector<int32_t>&, int64_t>(), nb::arg("host"),
             nb::arg("sockets"), nb::arg("silent_after_ms"))
        .def("close", &Heartbeats::close, nb::call_guard<nb::gil_scoped_release>(), "Leave on purpose.");
    nb::class_<Script>(m, "Script", "What one rank does in one collective.")
        .def_prop_ro("tasks", [](const Script& script) { return script.tasks.size(); })
        .def_ro("scratch_elements", &Script::scratch_elements)
        .def_ro("stage_elements", &Script::stage_elements);
    m.def("write_script", &write_script_py, nb::arg("table"), nb::arg("ranks"), nb::arg("slots"), nb::arg("start"),
          nb::arg("pairs"), nb::arg("segment"), nb::arg("rank"), nb::arg("max_segments"),
          "The part of a schedule that concerns one rank; sizes in elements.");
    m.def("write_exchange", &write_exchange_py, nb::arg("dealings"), nb::arg("segment"),
          "Elements to and from single peers: (peer, sends, receives, code), -1 where nothing goes that way.");
    m.attr("CHANNELS") = kChannels;
    nb::enum_<Status>(m, "Status", "How an operation ended.")
        .value("done", Status::done)
        .value("lost", Status::lost)
        .value("frozen", Status::frozen)
        .value("left", Status::left)
        .value("differs", Status::differs)
        .value("timed_out", Status::timed_out)
        .value("interrupted", Status::interrupted);
    nb::class_<Ending>(m, "Ending", "How an operation ended, and through whom.")
        .def_ro("status", &Ending::status)
        .def_ro("rank", &Ending::rank)
        .def_ro("row", &Ending::row)
        .def_ro("waited_for", &Ending::waited_for);
    nb::class_<Executor>(m, "Executor", "Runs scripts over links to the other ranks.")
        .def(nb::init<std::shared_ptr<Host>, int, int32_t, std::vector<int32_t>, std::vector<int32_t>,
                      std::vector<std::vector<int32_t>>, const std::vector<uint8_t>&>(),
             nb::arg("host"), nb::arg("channel"), nb::arg("rank"), nb::arg("job"), nb::arg("local"), nb::arg("sockets"),
             nb::arg("can_read"))
        .def("close", &Executor::close, "Leave on purpose; other channels of the host go on.")
        .def_prop_ro("sequence", &Executor::sequence)
        .def("run", &run_py, nb::arg("script"), nb::arg("fingerprint"), nb::arg("memory"), nb::arg("address"),
             nb::arg("shared"), nb::arg("large"), nb::arg("dtype"), nb::arg("op"), nb::arg("timeout_ms"),
             "Run one operation; never raises for what happens to peers, but says so.");
}

}  // namespace weft
