// The only file that sees Python: it turns arrays and names into calls of the engine, and nothing more.
// Callers in src/weft have checked ranges; what is checked here is only what would crash otherwise.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "arrays.hpp"
#include "bind.hpp"
#include "graph.hpp"

namespace weft {
namespace {

auto shortest_routes_py(int32_t nodes, In<int32_t> src, In<int32_t> dst, In<int64_t> bandwidth, In<int32_t> from,
                        In<int32_t> to, In<int64_t> key, bool hashed, uint64_t seed) {
    Graph graph{nodes, view(src), view(dst), view(bandwidth)};
    Routes routes;
    {
        nb::gil_scoped_release release;
        routes = shortest_routes(graph, view(from), view(to), {view(key), hashed, seed});
    }
    return std::make_tuple(give(std::move(routes.offsets)), give(std::move(routes.links)));
}

auto grid_routes_py(int32_t nodes, In<int32_t> src, In<int32_t> dst, In<int64_t> shape, In<uint8_t> wrap,
                    In<int32_t> from, In<int32_t> to) {
    Graph graph{nodes, view(src), view(dst), {}};
    Routes routes;
    std::vector<int64_t> broken;
    {
        nb::gil_scoped_release release;
        routes = grid_routes(graph, {view(shape), view(wrap)}, view(from), view(to), broken);
    }
    return std::make_tuple(give(std::move(routes.offsets)), give(std::move(routes.links)), give(std::move(broken)));
}

}  // namespace
}  // namespace weft

NB_MODULE(_core, m) {
    using namespace weft;
    m.doc() = "Weft's native half: what Python would be too slow for.";
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
          nb::arg("seed"), "Offsets and links of the shortest, widest path of each pair.");
    m.def("grid_routes", &grid_routes_py, nb::arg("nodes"), nb::arg("src"), nb::arg("dst"), nb::arg("shape"),
          nb::arg("wrap"), nb::arg("pair_src"), nb::arg("pair_dst"),
          "Offsets and links of the dimension-order path of each pair, and the pairs whose path is broken.");

    bind_simulation(m);
    bind_verification(m);
}
