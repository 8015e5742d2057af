// The searches for tight cuts as Python sees them.
// Python half: src/weft/bounds/tight_cuts.py.
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "bounds/tight_cuts.hpp"

namespace weft {
namespace {

Graph view_graph(int32_t nodes, int32_t ranks, const In<int32_t>& src, const In<int32_t>& dst,
                 const In<int64_t>& capacity) {
    if (dst.shape(0) != src.shape(0) || capacity.shape(0) != src.shape(0) || ranks < 2 || ranks > nodes) {
        throw std::invalid_argument("columns differ in length");
    }
    return {nodes, view(src), view(dst), view(capacity)};
}

Out<uint8_t> densest_cut_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst, In<int64_t> capacity) {
    Graph graph = view_graph(nodes, ranks, src, dst, capacity);
    std::vector<uint8_t> inside;
    {
        nb::gil_scoped_release release;
        inside = densest_cut(graph, ranks);
    }
    return to_numpy(std::move(inside));
}

Out<uint8_t> thinnest_cut_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst, In<int64_t> capacity,
                             int32_t root) {
    Graph graph = view_graph(nodes, ranks, src, dst, capacity);
    if (root < 0 || root >= ranks) throw std::invalid_argument("the root is not a rank");
    std::vector<uint8_t> inside;
    {
        nb::gil_scoped_release release;
        inside = thinnest_cut(graph, ranks, root);
    }
    return to_numpy(std::move(inside));
}

std::tuple<Out<int32_t>, int32_t, int64_t> strongest_partition_py(int32_t nodes, int32_t ranks, In<int32_t> src,
                                                                  In<int32_t> dst, In<int64_t> capacity) {
    Graph graph = view_graph(nodes, ranks, src, dst, capacity);
    Partition found;
    {
        nb::gil_scoped_release release;
        found = strongest_partition(graph, ranks);
    }
    return {to_numpy(std::move(found.part)), found.parts, found.capacity};
}

}  // namespace

void bind_bounds(nb::module_& m) {
    m.def("densest_cut", &densest_cut_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"), nb::arg("dst"),
          nb::arg("capacity"), "Nodes of the set, missing a rank, with the most ranks per capacity that leaves it.");
    m.def("thinnest_cut", &thinnest_cut_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"), nb::arg("dst"),
          nb::arg("capacity"), nb::arg("root"),
          "Nodes of the set, with the root and missing a rank, that the least capacity leaves.");
    m.def("strongest_partition", &strongest_partition_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"),
          nb::arg("dst"), nb::arg("capacity"),
          "Part of each rank, number of parts and capacity leaving them, for the most (parts - 1) per capacity.");
}

}  // namespace weft
