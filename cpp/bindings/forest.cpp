// Tree packings and timetables as Python sees them.
// Python half: src/weft/bounds/tree_columns.py and src/weft/algorithms/forest/timetable.py.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "bindings/arrays.hpp"
#include "bindings/module.hpp"
#include "synthesis/arborescence.hpp"
#include "synthesis/timetable.hpp"
#include "synthesis/tree_packing.hpp"

namespace weft {
namespace {

using Column32 = Out<int32_t>;
// Roots, the route up and the route down of each rank in each tree, offsets and links of the routes.
using TreeColumns = std::tuple<Column32, Column32, Column32, Out<int64_t>, Column32>;

TreeColumns trees_to_numpy(Trees&& trees) {
    return {to_numpy(std::move(trees.root)), to_numpy(std::move(trees.up)), to_numpy(std::move(trees.down)),
            to_numpy(std::move(trees.routes.offsets)), to_numpy(std::move(trees.routes.links))};
}

void check_lengths(bool fit) {
    if (!fit) throw std::invalid_argument("columns differ in length");
}

auto cheapest_column_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst, In<int32_t> twin,
                        In<int64_t> price, bool up, bool down, int32_t root, bool every_root) {
    check_lengths(dst.shape(0) == src.shape(0) && price.shape(0) == src.shape(0));
    Column column;
    {
        nb::gil_scoped_release release;
        RankNetwork network({nodes, view(src), view(dst), {}}, ranks, view(twin));
        column = cheapest_column(network, view(price), {up, down}, root, every_root);
    }
    return std::tuple_cat(std::make_tuple(column.price, column.exact), trees_to_numpy(std::move(column.trees)));
}

auto pack_trees_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst, In<int32_t> twin, In<double> slot,
                   In<int32_t> roots, int32_t trees, int32_t sweeps, int32_t raise_every, double sharpness,
                   double depth_price, bool up, bool down, uint64_t seed) {
    check_lengths(dst.shape(0) == src.shape(0) && slot.shape(0) == src.shape(0) && roots.shape(0) > 0);
    Packing packing;
    {
        nb::gil_scoped_release release;
        RankNetwork network({nodes, view(src), view(dst), {}}, ranks, view(twin));
        packing = pack_trees(
            network, {view(roots), view(slot), trees, sweeps, raise_every, sharpness, depth_price, {up, down}, seed});
    }
    return std::tuple_cat(std::make_tuple(to_numpy(std::move(packing.load)), to_numpy(std::move(packing.price))),
                          trees_to_numpy(std::move(packing.trees)));
}

auto rank_eccentricities_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst) {
    check_lengths(dst.shape(0) == src.shape(0));
    std::vector<int32_t> farthest;
    {
        nb::gil_scoped_release release;
        farthest = rank_eccentricities(RankNetwork({nodes, view(src), view(dst), {}}, ranks, {}));
    }
    return to_numpy(std::move(farthest));
}

auto schedule_trees_py(int32_t nodes, int32_t ranks, In<int32_t> src, In<int32_t> dst, In<int32_t> root, In<int32_t> up,
                       In<int32_t> down, In<int64_t> route_offsets, In<int32_t> route_links, In<int32_t> duration,
                       In<int32_t> latency, int32_t passes, int32_t patience, int32_t alternatives, int32_t good_enough,
                       uint64_t seed) {
    check_lengths(dst.shape(0) == src.shape(0) && duration.shape(0) == src.shape(0) &&
                  latency.shape(0) == src.shape(0) && up.shape(0) == root.shape(0) * ranks &&
                  down.shape(0) == up.shape(0));
    auto copy = [](const auto& column) { return std::vector(column.data(), column.data() + column.shape(0)); };
    Timetable table;
    {
        nb::gil_scoped_release release;
        RankNetwork network({nodes, view(src), view(dst), {}}, ranks, {});
        Trees trees{copy(root), copy(up), copy(down), {copy(route_offsets), copy(route_links)}};
        table = schedule_trees(network, std::move(trees),
                               {view(duration), view(latency), passes, patience, alternatives, good_enough, seed});
    }
    return std::tuple_cat(
        std::make_tuple(table.span, to_numpy(std::move(table.up_start)), to_numpy(std::move(table.down_start))),
        trees_to_numpy(std::move(table.trees)));
}

}  // namespace

void bind_forest(nb::module_& m) {
    m.def("cheapest_column", &cheapest_column_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"), nb::arg("dst"),
          nb::arg("twin"), nb::arg("price"), nb::arg("up"), nb::arg("down"), nb::arg("root"), nb::arg("every_root"),
          "Price of the cheapest in-tree plus out-tree, whether it is exact, and the tree.");
    m.def("pack_trees", &pack_trees_py, nb::kw_only(), nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"),
          nb::arg("dst"), nb::arg("twin"), nb::arg("slot"), nb::arg("roots"), nb::arg("trees"), nb::arg("sweeps"),
          nb::arg("raise_every"), nb::arg("sharpness"), nb::arg("depth_price"), nb::arg("up"), nb::arg("down"),
          nb::arg("seed"), "Load and price of every link, and the trees.");
    m.def("rank_eccentricities", &rank_eccentricities_py, nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"),
          nb::arg("dst"), "Links between each rank and the rank farthest from it, the longer way of the two.");
    m.def("schedule_trees", &schedule_trees_py, nb::kw_only(), nb::arg("nodes"), nb::arg("ranks"), nb::arg("src"),
          nb::arg("dst"), nb::arg("root"), nb::arg("up"), nb::arg("down"), nb::arg("route_offsets"),
          nb::arg("route_links"), nb::arg("duration"), nb::arg("latency"), nb::arg("passes"), nb::arg("patience"),
          nb::arg("alternatives"), nb::arg("good_enough"), nb::arg("seed"),
          "Ticks in all, start of every transfer up and down, and the trees.");
}

}  // namespace weft
