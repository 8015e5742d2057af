// MultiTree: one spanning tree per root, all grown together, step by step, in the links that are still free.
//
// "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning", ISCA 2021. Three ways to decide
// who grows where; every one of them leaves each step free of contention.
//
// Python half: src/weft/algorithms/multitree/growth.py.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "topology/graph.hpp"

namespace weft {

// Edge i: at `step`, `tree` grows from `parent` to `child` along row `route` of the route table.
class TreeEdges {
public:
    TreeEdges(size_t links, int64_t edges);
    void add(int32_t in_step, int32_t to_tree, int32_t from, int32_t to, std::span<const int32_t> path);
    void add(int32_t in_step, int32_t to_tree, int32_t from, int32_t to, int32_t by_route);

    std::vector<int32_t> step, tree, parent, child, route;
    Routes routes;

private:
    int32_t number(std::span<const int32_t> path);

    std::vector<int32_t> by_link_;  // numbers of the paths of one link
    std::map<std::vector<int32_t>, int32_t> by_path_;
};

struct GrowthInput {
    int32_t ranks;
    int32_t trees;                      // tree t is rooted at t / (trees / ranks)
    std::span<const int32_t> capacity;  // per link: chunks it carries in one step

    int32_t root(int32_t tree) const { return tree / (trees / ranks); }
    int64_t edges() const { return static_cast<int64_t>(trees) * (ranks - 1); }
};

// Trees take turns to add one edge each, as the authors have it. With `paper_order` also who goes first (larger
// `priority`, one per tree) and when a round ends are theirs.
TreeEdges grow_by_turns(const Graph& graph, const GrowthInput& input, std::span<const int32_t> priority,
                        bool paper_order);

// Ranks take what they lack: each step fills the links into a rank with as many trees as can be, those that are behind
// first; over switches, trees that are new to a rank's `group` come before others. `seed` breaks ties.
TreeEdges grow_by_need(const Graph& graph, const GrowthInput& input, std::span<const int32_t> group, uint64_t seed);

// A network that looks the same from every rank: ranks are points of a wrapped grid, and a link leads from every
// rank r to r + move.
struct Symmetry {
    std::span<const int64_t> shape;
    std::span<const int32_t> move;      // the rank it leads to from rank 0
    std::span<const int32_t> capacity;  // per move
    std::span<const int32_t> link;      // of move m from rank r, at m * ranks + r
};

// One tree is grown, all others are the same tree moved. Rows come out sorted as a schedule wants them.
TreeEdges grow_by_symmetry(const Symmetry& symmetry, int32_t ranks, int32_t trees, size_t links);

}  // namespace weft
