// Sets of nodes whose border limits a collective: the tightest of all, found by maximum flows.
//
// Each search is Newton's method on a ratio: take the ratio of the best set known, ask the flows whether any set beats
// it, and go on with the one that does. Two or three rounds suffice in practice. Numbers stay whole and so exact: the
// caller sees to it that (ranks + 1) times the sum of all capacities is below 2^62.
//
// Python half: src/weft/bounds/tight_cuts.py.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/graph.hpp"

namespace weft {

// The set with the most ranks per unit of capacity that leaves it, among those that miss a rank. One byte per node.
std::vector<uint8_t> densest_cut(const Graph& graph, int32_t ranks);

// The set with the least capacity leaving it, among those that hold the root and miss a rank. One byte per node.
std::vector<uint8_t> thinnest_cut(const Graph& graph, int32_t ranks, int32_t root);

struct Partition {
    std::vector<int32_t> part;  // of each rank, 0 .. parts - 1 in order of their first ranks
    int32_t parts;
    int64_t capacity;  // sum over the parts of the least capacity that leaves them, whatever switches join in
};

// The division of all ranks into parts that maximises (parts - 1) / capacity.
Partition strongest_partition(const Graph& graph, int32_t ranks);

}  // namespace weft
