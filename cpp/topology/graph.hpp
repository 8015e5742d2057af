// Paths and reachability on the directed graph of ranks and switches.
// Python half: src/weft/topology/graph.py and routing.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft {

struct Graph {
    int32_t nodes;
    std::span<const int32_t> src;
    std::span<const int32_t> dst;
    std::span<const int64_t> bandwidth;  // empty where speeds do not matter
};

// Path of pair i is links[offsets[i] .. offsets[i + 1]).
struct Routes {
    std::vector<int64_t> offsets{0};
    std::vector<int32_t> links;
};

// Links leaving (or entering) each node, in row order.
class Adjacency {
public:
    Adjacency(int32_t nodes, std::span<const int32_t> at);
    std::span<const int32_t> links(int32_t node) const {
        return {order_.data() + start_[node], static_cast<size_t>(start_[node + 1] - start_[node])};
    }

private:
    std::vector<int64_t> start_;
    std::vector<int32_t> order_;
};

// A pair of ranks (a, b) such that a cannot reach b, if there is one.
std::optional<std::pair<int32_t, int32_t>> unreachable_pair(const Graph& graph, int32_t ranks);

// How equally short, equally wide paths are told apart.
struct TieBreak {
    std::span<const int64_t> key;  // per destination rank
    bool hashed;
    uint64_t seed;
};

// Fewest links, then widest, then by `spread`. Throws TooMany when the paths together exceed `max_entries`.
Routes shortest_routes(const Graph& graph, std::span<const int32_t> from, std::span<const int32_t> to,
                       const TieBreak& spread, size_t max_entries);

struct GridShape {
    std::span<const int64_t> shape;
    std::span<const uint8_t> wrap;
};

// Last dimension first, the shorter way round. A pair whose path lost a link gets an empty path and its
// number in `broken`. Throws TooMany as above.
Routes grid_routes(const Graph& graph, const GridShape& grid, std::span<const int32_t> from,
                   std::span<const int32_t> to, size_t max_entries, std::vector<int64_t>& broken);

}  // namespace weft
