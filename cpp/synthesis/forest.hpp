// What the makers of tree packings share: the network as they see it, and trees in columns.
// Python half: src/weft/bounds/tree_columns.py and src/weft/algorithms/forest/timetable.py.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "topology/graph.hpp"

namespace weft {

// A graph with its ranks, both ways round.
struct RankNetwork {
    Graph graph;
    int32_t ranks;
    std::span<const int32_t> twin;  // per link, the other direction of its cable; empty unless all links have one
    Adjacency leaving, entering;

    RankNetwork(const Graph& of, int32_t rank_count, std::span<const int32_t> twins)
        : graph(of), ranks(rank_count), twin(twins), leaving(of.nodes, of.src), entering(of.nodes, of.dst) {}

    int32_t links() const { return static_cast<int32_t>(graph.src.size()); }
    bool symmetric() const { return !twin.empty(); }
};

// Equal link lists share one number.
class RouteTable {
public:
    int32_t number(const std::vector<int32_t>& links) {
        int32_t& known = links.size() == 1 ? single(links[0]) : known_.try_emplace(links, -1).first->second;
        if (known < 0) {
            known = static_cast<int32_t>(routes_.offsets.size()) - 1;
            routes_.links.insert(routes_.links.end(), links.begin(), links.end());
            routes_.offsets.push_back(static_cast<int64_t>(routes_.links.size()));
        }
        return known;
    }
    std::span<const int32_t> links(int32_t route) const {
        const int64_t* at = routes_.offsets.data() + route;
        return {routes_.links.data() + at[0], static_cast<size_t>(at[1] - at[0])};
    }
    Routes take() { return std::move(routes_); }

private:
    // On direct networks every route is one link: no need to search.
    int32_t& single(int32_t link) {
        if (link >= static_cast<int32_t>(singles_.size())) singles_.resize(link + 1, -1);
        return singles_[link];
    }
    std::map<std::vector<int32_t>, int32_t> known_;
    std::vector<int32_t> singles_;
    Routes routes_;
};

// Tree t gathers along up[t * ranks + r], the route from rank r to its parent, and spreads along
// down[t * ranks + r], the route from r's parent to r; -1 at the root, and throughout a half that is not wanted.
struct Trees {
    std::vector<int32_t> root, up, down;
    Routes routes;
};

// What a tree consists of: both halves for an all-reduce, one for a reduce or a broadcast.
struct Halves {
    bool up, down;
};

// Reproducible on every machine, which the generators of <random> with their distributions are not.
class RandomNumbers {
public:
    explicit RandomNumbers(uint64_t seed) : state_(seed) {}
    uint64_t next() {  // splitmix64
        uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31);
    }
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
    double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
    uint64_t state_;
};

}  // namespace weft
