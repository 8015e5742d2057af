// The growth of MultiTree's trees as Python sees it.
// Python half: src/weft/algorithms/multitree/growth.py.
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "synthesis/multitree_growth.hpp"

namespace weft {
namespace {

using Column = Out<int32_t>;
using Columns = std::tuple<Column, Column, Column, Column, Column, Out<int64_t>, Column>;

Columns edges_to_numpy(TreeEdges&& edges) {
    return {to_numpy(std::move(edges.step)),        to_numpy(std::move(edges.tree)),
            to_numpy(std::move(edges.parent)),      to_numpy(std::move(edges.child)),
            to_numpy(std::move(edges.route)),       to_numpy(std::move(edges.routes.offsets)),
            to_numpy(std::move(edges.routes.links))};
}

void check(bool fits) {
    if (!fits) throw std::invalid_argument("columns differ in length");
}

Columns grow_by_turns_py(int32_t nodes, int32_t ranks, int32_t trees, In<int32_t> src, In<int32_t> dst,
                         In<int32_t> capacity, In<int32_t> priority, bool paper_order) {
    check(ranks > 0 && trees % ranks == 0 && priority.shape(0) == static_cast<size_t>(trees) &&
          capacity.shape(0) == src.shape(0) && dst.shape(0) == src.shape(0));
    auto edges = [&] {
        nb::gil_scoped_release release;
        return grow_by_turns({nodes, view(src), view(dst), {}}, {ranks, trees, view(capacity)}, view(priority),
                             paper_order);
    }();
    return edges_to_numpy(std::move(edges));
}

Columns grow_by_need_py(int32_t nodes, int32_t ranks, int32_t trees, In<int32_t> src, In<int32_t> dst,
                        In<int32_t> capacity, In<int32_t> group, uint64_t seed) {
    check(ranks > 0 && trees % ranks == 0 && group.shape(0) == static_cast<size_t>(ranks) &&
          capacity.shape(0) == src.shape(0) && dst.shape(0) == src.shape(0));
    auto edges = [&] {
        nb::gil_scoped_release release;
        return grow_by_need({nodes, view(src), view(dst), {}}, {ranks, trees, view(capacity)}, view(group), seed);
    }();
    return edges_to_numpy(std::move(edges));
}

Columns grow_by_symmetry_py(int32_t ranks, int32_t trees, In<int64_t> shape, In<int32_t> move, In<int32_t> capacity,
                            In<int32_t> link) {
    check(ranks > 0 && trees % ranks == 0 && capacity.shape(0) == move.shape(0) &&
          link.shape(0) == move.shape(0) * static_cast<size_t>(ranks));
    auto edges = [&] {
        nb::gil_scoped_release release;
        return grow_by_symmetry({view(shape), view(move), view(capacity), view(link)}, ranks, trees, link.shape(0));
    }();
    return edges_to_numpy(std::move(edges));
}

}  // namespace

void bind_multitree(nb::module_& m) {
    m.def("grow_multitree_by_turns", &grow_by_turns_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("trees"),
          nb::arg("src"), nb::arg("dst"), nb::arg("capacity"), nb::arg("priority"), nb::arg("paper_order"),
          "Edges of the trees (step, tree, parent, child, route) and their route table (offsets, links).");
    m.def("grow_multitree_by_need", &grow_by_need_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("trees"),
          nb::arg("src"), nb::arg("dst"), nb::arg("capacity"), nb::arg("group"), nb::arg("seed"),
          "The same, each step filling the links into every rank as far as can be.");
    m.def("grow_multitree_by_symmetry", &grow_by_symmetry_py, nb::arg("ranks"), nb::arg("trees"), nb::arg("shape"),
          nb::arg("move"), nb::arg("capacity"), nb::arg("link"),
          "The same for a network that looks alike from every rank; rows are sorted.");
}

}  // namespace weft
