// Routes of a topology, for Python.
// Python half: src/weft/topology (graph.py, routing.py).
#include "topology/graph.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"

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

}  // namespace

void bind_topology(nb::module_& m) {
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
}

}  // namespace weft
