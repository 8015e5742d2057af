// Python half: src/weft/topology/graph.py and routing.py.
#include "topology/graph.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "common/work_limit.hpp"

namespace weft {

Adjacency::Adjacency(int32_t nodes, std::span<const int32_t> at) : start_(nodes + 1, 0), order_(at.size()) {
    for (int32_t node : at) ++start_[node + 1];
    std::partial_sum(start_.begin(), start_.end(), start_.begin());
    std::vector<int64_t> next(start_.begin(), start_.end() - 1);
    for (size_t link = 0; link < at.size(); ++link) order_[next[at[link]]++] = static_cast<int32_t>(link);
}

namespace {

std::vector<uint8_t> reached_from(int32_t nodes, std::span<const int32_t> near, std::span<const int32_t> far) {
    Adjacency leaving(nodes, near);
    std::vector<uint8_t> seen(nodes, 0);
    std::vector<int32_t> queue{0};
    seen[0] = 1;
    for (size_t head = 0; head < queue.size(); ++head) {
        for (int32_t link : leaving.links(queue[head])) {
            if (!seen[far[link]]) {
                seen[far[link]] = 1;
                queue.push_back(far[link]);
            }
        }
    }
    return seen;
}

uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Distances to one destination, and how wide the widest of the shortest paths is.
struct DistancesTo {
    std::vector<int32_t> hops;
    std::vector<int64_t> width;

    // Of all nodes that are no farther from `target` than the farthest source of these pairs.
    DistancesTo(const Graph& graph, const Adjacency& entering, int32_t target, std::span<const int64_t> pairs,
                std::span<const int32_t> from)
        : hops(graph.nodes, -1), width(graph.nodes, 0) {
        size_t reached = 0;
        auto is_reached = [&](int64_t pair, int32_t level) {
            return hops[from[pair]] >= 0 && hops[from[pair]] <= level;
        };
        std::vector<int32_t> queue{target};
        hops[target] = 0;
        width[target] = std::numeric_limits<int64_t>::max();
        // A node's width is final before its own links are looked at: all of its successors are one level
        // nearer and were expanded earlier.
        for (size_t head = 0; head < queue.size(); ++head) {
            int32_t node = queue[head];
            while (reached < pairs.size() && is_reached(pairs[reached], hops[node])) ++reached;
            if (reached == pairs.size()) return;
            for (int32_t link : entering.links(node)) {
                int32_t before = graph.src[link];
                if (hops[before] < 0) {
                    hops[before] = hops[node] + 1;
                    queue.push_back(before);
                }
                if (hops[before] == hops[node] + 1) {
                    width[before] = std::max(width[before], std::min(width[node], graph.bandwidth[link]));
                }
            }
        }
    }
};

}  // namespace

std::optional<std::pair<int32_t, int32_t>> unreachable_pair(const Graph& graph, int32_t ranks) {
    auto forward = reached_from(graph.nodes, graph.src, graph.dst);
    auto backward = reached_from(graph.nodes, graph.dst, graph.src);
    for (int32_t rank = 0; rank < ranks; ++rank) {
        if (!forward[rank]) return std::pair{0, rank};
        if (!backward[rank]) return std::pair{rank, 0};
    }
    return std::nullopt;
}

Routes shortest_routes(const Graph& graph, std::span<const int32_t> from, std::span<const int32_t> to,
                       const TieBreak& spread, size_t max_entries) {
    WorkLimit work_limit;
    Adjacency leaving(graph.nodes, graph.src);
    Adjacency entering(graph.nodes, graph.dst);
    std::vector<int64_t> by_target(from.size());
    std::iota(by_target.begin(), by_target.end(), 0);
    std::stable_sort(by_target.begin(), by_target.end(), [&](int64_t a, int64_t b) { return to[a] < to[b]; });

    std::vector<int32_t> flat;
    std::vector<int64_t> begin(from.size()), length(from.size());
    std::vector<int32_t> candidates;
    for (size_t i = 0; i < by_target.size();) {
        int32_t target = to[by_target[i]];
        work_limit.spend(8 * static_cast<size_t>(graph.nodes));
        size_t end = i;
        while (end < by_target.size() && to[by_target[end]] == target) ++end;
        DistancesTo towards(graph, entering, target, std::span(by_target).subspan(i, end - i), from);
        for (; i < end; ++i) {
            int64_t pair = by_target[i];
            begin[pair] = static_cast<int64_t>(flat.size());
            int32_t node = from[pair];
            if (towards.hops[node] < 0) throw std::invalid_argument("no path between two of the ranks");
            while (node != target) {
                candidates.clear();
                for (int32_t link : leaving.links(node)) {
                    int32_t after = graph.dst[link];
                    if (towards.hops[after] == towards.hops[node] - 1 && towards.hops[after] >= 0 &&
                        std::min(towards.width[after], graph.bandwidth[link]) == towards.width[node]) {
                        candidates.push_back(link);
                    }
                }
                uint64_t choice = static_cast<uint64_t>(spread.key[target]);
                if (spread.hashed) {
                    uint64_t flow = (static_cast<uint64_t>(from[pair]) << 32) | static_cast<uint32_t>(target);
                    choice = mix(mix(mix(spread.seed) ^ flow) ^ static_cast<uint64_t>(node));
                }
                int32_t link = candidates[choice % candidates.size()];
                flat.push_back(link);
                node = graph.dst[link];
            }
            length[pair] = static_cast<int64_t>(flat.size()) - begin[pair];
            work_limit.spend(16 * static_cast<size_t>(length[pair]));
            if (flat.size() > max_entries) throw TooMany("links of routes");
        }
    }
    Routes routes;
    routes.offsets.resize(from.size() + 1);
    std::partial_sum(length.begin(), length.end(), routes.offsets.begin() + 1);
    routes.links.resize(flat.size());
    for (size_t pair = 0; pair < from.size(); ++pair) {
        std::copy_n(flat.begin() + begin[pair], length[pair], routes.links.begin() + routes.offsets[pair]);
    }
    return routes;
}

Routes grid_routes(const Graph& graph, const GridShape& grid, std::span<const int32_t> from,
                   std::span<const int32_t> to, size_t max_entries, std::vector<int64_t>& broken) {
    WorkLimit work_limit;
    Adjacency leaving(graph.nodes, graph.src);
    std::vector<int32_t> parallel;
    Routes routes;
    routes.offsets.reserve(from.size() + 1);
    for (size_t pair = 0; pair < from.size(); ++pair) {
        int64_t node = from[pair];
        int64_t stride = 1;
        bool whole = true;
        size_t mark = routes.links.size();
        for (size_t axis = grid.shape.size(); axis-- > 0 && whole;) {
            int64_t size = grid.shape[axis];
            int64_t here = node / stride % size, target = to[pair] / stride % size;
            int64_t ahead = (target - here + size) % size;
            bool forward = grid.wrap[axis] ? 2 * ahead <= size : target >= here;
            while (here != target && whole) {
                int64_t next = (here + (forward ? 1 : size - 1)) % size;
                int64_t after = node + (next - here) * stride;
                parallel.clear();
                for (int32_t link : leaving.links(static_cast<int32_t>(node))) {
                    if (graph.dst[link] == after) parallel.push_back(link);
                }
                whole = !parallel.empty();
                if (whole) routes.links.push_back(parallel[to[pair] % parallel.size()]);
                node = after;
                here = next;
            }
            stride *= size;
        }
        if (!whole) {
            routes.links.resize(mark);
            broken.push_back(static_cast<int64_t>(pair));
        }
        work_limit.spend(16 * (routes.links.size() - mark) + 16);
        if (routes.links.size() > max_entries) throw TooMany("links of routes");
        routes.offsets.push_back(static_cast<int64_t>(routes.links.size()));
    }
    return routes;
}

}  // namespace weft
