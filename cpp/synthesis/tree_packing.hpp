// Many shallow trees that load all links evenly: each is grown where the others left room.
// Python half: src/weft/bounds/tree_columns.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "synthesis/forest.hpp"

namespace weft {

struct PackingOptions {
    std::span<const int32_t> roots;  // tree t is rooted at roots[t % size]
    std::span<const double> slot;    // per link: time that one tree's share takes on it, in any unit
    int32_t trees;
    int32_t sweeps;       // how often every tree is taken out and grown again
    int32_t raise_every;  // edges after which a tree feels its own load; 1 is best, and slow on large networks
    double sharpness;     // doublings of a link's price per slot of load of the slowest link
    double depth_price;   // price of one more level, in average edges
    Halves halves;
    uint64_t seed;
};

struct Packing {
    Trees trees;
    std::vector<int64_t> load;  // per link: trees that cross it, with repetition
    std::vector<double> price;  // per link: what it cost at the end
};

// Links on the shortest path between each rank and the rank farthest from it, there or back, whichever is longer.
std::vector<int32_t> rank_eccentricities(const RankNetwork& network);

Packing pack_trees(const RankNetwork& network, const PackingOptions& options);

}  // namespace weft
