// Python half: src/weft/bounds/tight_cuts.py.
#include "bounds/tight_cuts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "bounds/maxflow.hpp"

namespace weft {
namespace {

constexpr int64_t kEverything = std::numeric_limits<int64_t>::max() / 2;

struct Ports {
    std::vector<int64_t> out, into;

    explicit Ports(const Graph& graph) : out(graph.nodes, 0), into(graph.nodes, 0) {
        for (size_t link = 0; link < graph.src.size(); ++link) {
            out[graph.src[link]] += graph.bandwidth[link];
            into[graph.dst[link]] += graph.bandwidth[link];
        }
    }
};

int64_t leaving(const Graph& graph, const std::vector<uint8_t>& inside) {
    int64_t sum = 0;
    for (size_t link = 0; link < graph.src.size(); ++link) {
        if (inside[graph.src[link]] && !inside[graph.dst[link]]) sum += graph.bandwidth[link];
    }
    return sum;
}

std::vector<uint8_t> near_side(const MaxFlow& flow, int32_t nodes) {
    std::vector<uint8_t> inside(nodes);
    for (int32_t node = 0; node < nodes; ++node) inside[node] = !flow.drains(node);
    return inside;
}

struct Cut {
    std::vector<uint8_t> inside;
    int64_t ranks;
    int64_t capacity;
};

// a / b > c / d for what fits into 62 bits.
bool exceeds(int64_t a, int64_t b, int64_t c, int64_t d) {
    return static_cast<__int128>(a) * d > static_cast<__int128>(c) * b;
}

// The densest of the sets that are a single rank, or everything but one.
Cut densest_of_the_simple(const Graph& graph, int32_t ranks) {
    Ports ports(graph);
    Cut best{std::vector<uint8_t>(graph.nodes, 0), 0, 1};
    int32_t rank = 0;
    bool alone = true;
    for (int32_t r = 0; r < ranks; ++r) {
        for (bool single : {true, false}) {
            int64_t count = single ? 1 : ranks - 1, capacity = single ? ports.out[r] : ports.into[r];
            if (!exceeds(count, capacity, best.ranks, best.capacity)) continue;
            best.ranks = count;
            best.capacity = capacity;
            rank = r;
            alone = single;
        }
    }
    std::fill(best.inside.begin(), best.inside.end(), !alone);
    best.inside[rank] = alone;
    return best;
}

}  // namespace

std::vector<uint8_t> densest_cut(const Graph& graph, int32_t ranks) {
    MaxFlow flow(graph);
    Cut best = densest_of_the_simple(graph, ranks);
    std::vector<int64_t> supply(graph.nodes, 0), drain(graph.nodes, 0);
    for (int32_t sink = 0; sink < ranks; ++sink) {
        drain[sink] = kEverything;
        while (true) {
            // No set without the sink is denser if and only if every rank can send `capacity` when each link carries
            // `ranks` times what it does.
            std::fill(supply.begin(), supply.begin() + ranks, best.capacity);
            supply[sink] = 0;
            if (flow.run(best.ranks, supply, drain) == best.capacity * (ranks - 1)) break;
            best.inside = near_side(flow, graph.nodes);
            best.ranks = std::count(best.inside.begin(), best.inside.begin() + ranks, 1);
            best.capacity = leaving(graph, best.inside);
        }
        drain[sink] = 0;
    }
    return best.inside;
}

std::vector<uint8_t> thinnest_cut(const Graph& graph, int32_t ranks, int32_t root) {
    Ports ports(graph);
    MaxFlow flow(graph);
    std::vector<uint8_t> best(graph.nodes, 0);
    best[root] = 1;
    int64_t least = ports.out[root];
    for (int32_t rank = 0; rank < ranks; ++rank) {
        if (rank == root || ports.into[rank] >= least) continue;
        least = ports.into[rank];
        std::fill(best.begin(), best.end(), 1);
        best[rank] = 0;
    }
    std::vector<int64_t> supply(graph.nodes, 0), drain(graph.nodes, 0);
    for (int32_t sink = 0; sink < ranks; ++sink) {
        if (sink == root) continue;
        supply[root] = least;
        drain[sink] = kEverything;
        int64_t arrived = flow.run(1, supply, drain);
        drain[sink] = 0;
        if (arrived == least) continue;
        least = arrived;
        best = near_side(flow, graph.nodes);
    }
    return best;
}

namespace {

// Minimises the sum of f(P) = gain * h(P) - toll over all divisions of the ranks into parts P, where h(P) is the least
// capacity that leaves P. f is submodular on sets that meet, so Edmonds' greedy algorithm does it: give each rank in
// turn the largest x that keeps x(S) <= f(S) for all sets S of ranks so far, and merge the sets that are tight.
// A. Frank, E. Tardos, "Generalized polymatroids and submodular flows", Math. Programming 42, 1988.
class PartitionSearch {
public:
    PartitionSearch(const Graph& graph, int32_t ranks)
        : ports_(graph), flow_(graph), nodes_(graph.nodes), ranks_(ranks) {}

    Partition minimise(int64_t gain, int64_t toll) {
        supply_.assign(nodes_, 0);
        drain_.assign(nodes_, 0);
        std::fill(drain_.begin(), drain_.begin() + ranks_, kEverything);
        parent_.resize(ranks_);
        std::iota(parent_.begin(), parent_.end(), 0);
        positive_ = total_ = 0;
        for (int32_t rank = 0; rank < ranks_; ++rank) place(rank, gain, toll);
        Partition found = number_parts();
        // total_ is the minimum, and so the sum over the parts.
        found.capacity = (total_ + toll * found.parts) / gain;
        return found;
    }

private:
    void place(int32_t rank, int64_t gain, int64_t toll) {
        // One more than can leave, so that the rank itself is never left on the far side.
        supply_[rank] = gain * ports_.out[rank] + 1;
        drain_[rank] = 0;
        int64_t x = flow_.run(gain, supply_, drain_) - positive_ - toll;
        for (int32_t other = 0; other < rank; ++other) {
            if (!flow_.drains(other)) parent_[root_of(other)] = root_of(rank);
        }
        supply_[rank] = std::max<int64_t>(x, 0);
        drain_[rank] = std::max<int64_t>(-x, 0);
        positive_ += supply_[rank];
        total_ += x;
    }

    int32_t root_of(int32_t rank) {
        while (parent_[rank] != rank) rank = parent_[rank] = parent_[parent_[rank]];
        return rank;
    }

    Partition number_parts() {
        Partition found{std::vector<int32_t>(ranks_, -1), 0, 0};
        std::vector<int32_t> number(ranks_, -1);
        for (int32_t rank = 0; rank < ranks_; ++rank) {
            int32_t& name = number[root_of(rank)];
            if (name < 0) name = found.parts++;
            found.part[rank] = name;
        }
        return found;
    }

    Ports ports_;
    MaxFlow flow_;
    int32_t nodes_, ranks_;
    std::vector<int64_t> supply_, drain_;
    std::vector<int32_t> parent_;
    int64_t positive_ = 0, total_ = 0;
};

}  // namespace

Partition strongest_partition(const Graph& graph, int32_t ranks) {
    Ports ports(graph);
    PartitionSearch search(graph, ranks);
    Partition best{std::vector<int32_t>(ranks), ranks, 0};
    std::iota(best.part.begin(), best.part.end(), 0);
    best.capacity = std::accumulate(ports.out.begin(), ports.out.begin() + ranks, int64_t{0});
    while (true) {
        Partition found = search.minimise(best.parts - 1, best.capacity);
        if (found.parts < 2 || !exceeds(found.parts - 1, found.capacity, best.parts - 1, best.capacity)) return best;
        best = std::move(found);
    }
}

}  // namespace weft
