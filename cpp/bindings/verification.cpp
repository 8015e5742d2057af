// The verifier as Python sees it. `weft.schedule.ir` has checked every range before a table comes here.
// Python half: src/weft/verification (semantics.py, deadlock.py, contention.py).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "verification/contention.hpp"
#include "verification/deadlock.hpp"
#include "verification/semantics.hpp"

namespace weft {
namespace {

using namespace verification;
auto check_semantics_py(const Table& table, int32_t ranks, In<int32_t> source, In<int32_t> target, size_t block_bytes) {
    Transfers transfers{table.rows(), ranks, view(source), view(target)};
    nb::gil_scoped_release release;
    return check_semantics(transfers, block_bytes);
}

auto find_deadlock_py(const Table& table, int32_t ranks, In<int32_t> source, In<int64_t> message_starts, bool fused,
                      int64_t slots) {
    Transfers transfers{table.rows(), ranks, view(source), view(source)};
    std::vector<Wait> circle;
    {
        nb::gil_scoped_release release;
        circle = find_deadlock({transfers, view(message_starts), transfers.route, fused}, slots);
    }
    std::vector<std::tuple<int64_t, bool, int>> waits;
    for (const Wait& wait : circle) waits.emplace_back(wait.row, wait.consume, static_cast<int>(wait.reason));
    return waits;
}

int64_t minimum_slots_py(const Table& table, int32_t ranks, In<int32_t> source, In<int64_t> message_starts,
                         bool fused) {
    Transfers transfers{table.rows(), ranks, view(source), view(source)};
    nb::gil_scoped_release release;
    return minimum_slots({transfers, view(message_starts), transfers.route, fused});
}

auto number_connections_py(In<int32_t> src, In<int32_t> dst, In<int32_t> route) {
    Connections found;
    {
        nb::gil_scoped_release release;
        found = number_connections(view(src), view(dst), view(route));
    }
    return std::make_tuple(to_numpy(std::move(found.of_row)), to_numpy(std::move(found.first_row)));
}

auto count_flows_py(In<int32_t> step, In<int32_t> chunk, In<int32_t> connection, In<double> weight, In<int64_t> offsets,
                    In<int32_t> links, int32_t link_count, size_t keep) {
    Contention found;
    {
        nb::gil_scoped_release release;
        found = count_flows(
            {view(step), view(chunk), view(connection), view(weight), view(offsets), view(links), link_count}, keep);
    }
    std::vector<std::tuple<int32_t, int32_t, int32_t>> worst;
    for (const SharedLink& meeting : found.worst) worst.emplace_back(meeting.step, meeting.link, meeting.flows);
    return std::make_tuple(to_numpy(std::move(found.link_flows)), to_numpy(std::move(found.link_weight)),
                           to_numpy(std::move(found.step_flows)), to_numpy(std::move(found.step_weight)), worst);
}

}  // namespace

void bind_verification(nb::module_& m) {
    nb::enum_<Fault>(m, "Fault", "What kind of wrong a schedule is.")
        .value("hazard", Fault::hazard)
        .value("undefined", Fault::undefined)
        .value("wrong_sum", Fault::wrong_sum);
    nb::class_<Finding>(m, "Finding", "Where a schedule goes wrong; see verification/semantics.hpp.")
        .def_ro("fault", &Finding::fault)
        .def_ro("chunk", &Finding::chunk)
        .def_ro("rank", &Finding::rank)
        .def_ro("slot", &Finding::slot)
        .def_ro("transfer", &Finding::transfer)
        .def_ro("other", &Finding::other)
        .def_ro("unheld_sender", &Finding::unheld_sender)
        .def_ro("missing", &Finding::missing)
        .def_ro("doubled", &Finding::doubled);
    m.def("check_semantics", &check_semantics_py, nb::arg("table"), nb::arg("ranks"), nb::arg("source"),
          nb::arg("target"), nb::arg("block_bytes"),
          "The first place where a schedule does not compute its collective, or None.");
    m.def("find_deadlock", &find_deadlock_py, nb::arg("table"), nb::arg("ranks"), nb::arg("source"),
          nb::arg("message_starts"), nb::arg("fused"), nb::arg("slots"),
          "Events (first row, whether it is the consumption, reason) that wait for each other in a circle.");
    m.def("minimum_slots", &minimum_slots_py, nb::arg("table"), nb::arg("ranks"), nb::arg("source"),
          nb::arg("message_starts"), nb::arg("fused"), "Receive slots per connection that a schedule needs.");
    m.def("number_connections", &number_connections_py, nb::arg("src"), nb::arg("dst"), nb::arg("route"),
          "The connection of each row, and the first row of each connection.");
    m.def("count_flows", &count_flows_py, nb::arg("step"), nb::arg("chunk"), nb::arg("connection"), nb::arg("weight"),
          nb::arg("offsets"), nb::arg("links"), nb::arg("link_count"), nb::arg("keep"),
          "Most flows and whole weight per link, most of both per step, and the worst meetings.");
}

}  // namespace weft
