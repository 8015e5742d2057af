// MultiTree: one spanning tree per root, all grown together, step by step, in the links that are still free.
//
// "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning", ISCA 2021.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph.hpp"

namespace weft {

struct MultiTreeOptions {
    std::span<const int32_t> capacity;  // per link: chunks it carries in one step
    std::span<const int32_t> priority;  // per tree; who goes first in a round, larger first
    int32_t ranks;
    int32_t trees;     // tree t is rooted at t / (trees / ranks)
    bool paper_order;  // end a round, and sort the trees, as the authors' code does
    bool pass_all;     // paths may pass through switches that have ranks of their own
};

// Edge i of the forest: at `step`, `tree` grows from `parent` to `child` along a row of the route table.
struct Forest {
    std::vector<int32_t> step, tree, parent, child, route;
    Routes routes;
};

Forest grow_multitree(const Graph& graph, const MultiTreeOptions& options);

}  // namespace weft
