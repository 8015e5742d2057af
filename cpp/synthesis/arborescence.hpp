// Cheapest trees over the ranks when every link has a price: what a linear programme over trees asks for.
//
// An edge of a tree is a path between two ranks through switches only; a rank that relays is a member.
//
// Python half: src/weft/bounds/tree_columns.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "synthesis/forest.hpp"

namespace weft {

struct Arc {
    int32_t src, dst;
    int64_t weight;
};

// The arc into every node of a cheapest arborescence that leaves `root` (-1 at the root), in O(E log E).
// Throws if a node cannot be reached.
std::vector<int32_t> cheapest_arborescence(int32_t nodes, int32_t root, std::span<const Arc> arcs);

struct Column {
    int64_t price;  // of the cheapest column, or less where `exact` is false
    bool exact;     // whether `trees` costs just that
    Trees trees;    // one tree
};

// Cheapest in-tree plus out-tree with a common root; `root` fixes the root, -1 leaves it free. Prices must be
// small enough for sums over all links to fit. On symmetric prices that is a minimum spanning tree, both ways.
// Otherwise all roots are tried if `every_root`, else the two halves are priced apart, each at its own best root.
Column cheapest_column(const RankNetwork& network, std::span<const int64_t> price, Halves halves, int32_t root,
                       bool every_root);

}  // namespace weft
