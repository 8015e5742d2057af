// The module weft._core, which has no need of Linux; weft._runtime is in runtime.cpp. Only the files of this folder see
// Python: they turn arrays and names into calls and nothing more. Callers in src/weft have checked ranges; the bindings
// check only what would crash otherwise.
// Python half: src/weft/topology (graph.py, routing.py), src/weft/columns.py and src/weft/schedule/ir.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "common/work_limit.hpp"
#include "schedule/row_order.hpp"
#include "topology/graph.hpp"

namespace weft {
namespace {

auto shortest_routes_py(int32_t nodes, In<int32_t> src, In<int32_t> dst, In<int64_t> bandwidth, In<int32_t> from,
                        In<int32_t> to, In<int64_t> key, bool hashed, uint64_t seed, size_t max_entries) {
    Graph graph{nodes, view(src), view(dst), view(bandwidth)};
    Routes routes;
    {
        nb::gil_scoped_release release;
        routes = shortest_routes(graph, view(from), view(to), {view(key), hashed, seed}, max_entries);
    }
    return std::make_tuple(to_numpy(std::move(routes.offsets)), to_numpy(std::move(routes.links)));
}

auto grid_routes_py(int32_t nodes, In<int32_t> src, In<int32_t> dst, In<int64_t> shape, In<uint8_t> wrap,
                    In<int32_t> from, In<int32_t> to, size_t max_entries) {
    Graph graph{nodes, view(src), view(dst), {}};
    Routes routes;
    std::vector<int64_t> broken;
    {
        nb::gil_scoped_release release;
        routes = grid_routes(graph, {view(shape), view(wrap)}, view(from), view(to), max_entries, broken);
    }
    return std::make_tuple(to_numpy(std::move(routes.offsets)), to_numpy(std::move(routes.links)),
                           to_numpy(std::move(broken)));
}

std::optional<Out<int64_t>> row_order_py(const std::vector<In<int32_t>>& keys) {
    std::vector<std::span<const int32_t>> views;
    for (const auto& key : keys) {
        if (key.shape(0) != keys.front().shape(0)) throw std::invalid_argument("columns differ in length");
        views.push_back(view(key));
    }
    if (views.empty()) return std::nullopt;
    auto order = row_order(views);
    if (!order) return std::nullopt;
    return to_numpy(std::move(*order));
}

}  // namespace

}  // namespace weft

NB_MODULE(_core, m) {
    using namespace weft;
    m.doc() = "Weft's native half: what Python would be too slow for.";
    // Arrays in shared memory outlive the interpreter where users keep tensors of them.
    nb::set_leak_warnings(false);
    // Of weft._runtime too: both are in one domain of nanobind, and so share types and the translation of exceptions.
    nb::exception<TooMany>(m, "TooMany");
    m.def("version", [] { return nb::str(WEFT_VERSION); }, "Return the version this extension was built as.");

    m.def(
        "unreachable_pair",
        [](int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst) {
            return unreachable_pair({nodes, view(src), view(dst), {}}, ranks);
        },
        nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"), nb::arg("dst"),
        "Two ranks of which the first cannot reach the second, or None.");
    m.def("shortest_routes", &shortest_routes_py, nb::arg("nodes"), nb::arg("src"), nb::arg("dst"),
          nb::arg("bandwidth"), nb::arg("pair_src"), nb::arg("pair_dst"), nb::arg("key"), nb::arg("hashed"),
          nb::arg("seed"), nb::arg("max_entries"), "Offsets and links of the shortest, widest path of each pair.");
    m.def("grid_routes", &grid_routes_py, nb::arg("nodes"), nb::arg("src"), nb::arg("dst"), nb::arg("shape"),
          nb::arg("wrap"), nb::arg("pair_src"), nb::arg("pair_dst"), nb::arg("max_entries"),
          "Offsets and links of the dimension-order path of each pair, and the pairs whose path is broken.");

    m.def("row_order", &row_order_py, nb::arg("keys"),
          "Stable sorting permutation by several columns, most significant first, or None if in order already.");

    bind_bounds(m);
    nb::class_<Table>(m, "Table", "The transfer columns of a schedule.")
        .def(
            "__init__",
            [](Table* self, In<int32_t> step, In<int32_t> chunk, In<int32_t> src, In<int32_t> dst, In<uint8_t> op,
               In<int32_t> route, std::optional<In<int32_t>> src_slot, std::optional<In<int32_t>> dst_slot) {
                size_t rows = step.shape(0);
                bool same = chunk.shape(0) == rows && src.shape(0) == rows && dst.shape(0) == rows &&
                            op.shape(0) == rows && route.shape(0) == rows &&
                            src_slot.has_value() == dst_slot.has_value() &&
                            (!src_slot || (src_slot->shape(0) == rows && dst_slot->shape(0) == rows));
                if (!same) throw std::invalid_argument("columns differ in length");
                new (self) Table{step, chunk, src, dst, op, route, src_slot, dst_slot};
            },
            nb::arg("step"), nb::arg("chunk"), nb::arg("src"), nb::arg("dst"), nb::arg("op"), nb::arg("route"),
            nb::arg("src_slot").none(), nb::arg("dst_slot").none());

    bind_forest(m);
    bind_packets(m);
    bind_simulation(m);
    bind_multitree(m);
    bind_verification(m);
    bind_workflow(m);
}
