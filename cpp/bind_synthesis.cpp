#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <tuple>

#include "arrays.hpp"
#include "bind.hpp"
#include "multitree.hpp"

namespace weft {
namespace {

using Column = Out<int32_t>;

std::tuple<Column, Column, Column, Column, Column, Out<int64_t>, Column> grow_multitree_py(int32_t nodes, int32_t ranks, int32_t trees, In<int32_t> src, In<int32_t> dst,
                            In<int32_t> capacity, In<int32_t> priority, bool paper_order, bool pass_all) {
    bool fits = ranks > 0 && trees % ranks == 0 && priority.shape(0) == static_cast<size_t>(trees) &&
                capacity.shape(0) == src.shape(0) && dst.shape(0) == src.shape(0);
    if (!fits) throw std::invalid_argument("columns differ in length");
    Forest forest;
    {
        nb::gil_scoped_release release;
        Graph graph{nodes, view(src), view(dst), {}};
        forest = grow_multitree(graph, {view(capacity), view(priority), ranks, trees, paper_order, pass_all});
    }
    return {give(std::move(forest.step)),  give(std::move(forest.tree)),
            give(std::move(forest.parent)), give(std::move(forest.child)),
            give(std::move(forest.route)), give(std::move(forest.routes.offsets)),
            give(std::move(forest.routes.links))};
}

}  // namespace

void bind_synthesis(nb::module_& m) {
    m.def("grow_multitree", &grow_multitree_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("trees"), nb::arg("src"),
          nb::arg("dst"), nb::arg("capacity"), nb::arg("priority"), nb::arg("paper_order"), nb::arg("pass_all"),
          "Edges of the forest (step, tree, parent, child, route) and its route table (offsets, links).");
}

}  // namespace weft
