// Python half: src/weft/bounds/tree_columns.py.
#include "synthesis/arborescence.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <utility>

namespace weft {

namespace {

// Sets that grow by joining and can be taken apart again, last join first.
class Sets {
public:
    explicit Sets(int32_t count) : above_(count, -1) {}
    int32_t find(int32_t x) const {
        while (above_[x] >= 0) x = above_[x];
        return x;
    }
    bool join(int32_t a, int32_t b) {
        a = find(a), b = find(b);
        if (a == b) return false;
        if (above_[a] > above_[b]) std::swap(a, b);
        joins_.push_back({a, above_[a], b, above_[b]});
        above_[a] += above_[b];
        above_[b] = a;
        return true;
    }
    size_t joins() const { return joins_.size(); }
    void undo_to(size_t joins) {
        for (; joins_.size() > joins; joins_.pop_back()) {
            const Join& last = joins_.back();
            above_[last.a] = last.was_a;
            above_[last.b] = last.was_b;
        }
    }

private:
    struct Join {
        int32_t a, was_a, b, was_b;
    };
    std::vector<int32_t> above_;  // the set's name, or minus its size
    std::vector<Join> joins_;
};

// Arcs into each set, cheapest first: skew heaps whose weights can all be lowered at once.
class ArcHeaps {
public:
    explicit ArcHeaps(std::span<const Arc> arcs) : nodes_(arcs.size()) {
        for (size_t arc = 0; arc < arcs.size(); ++arc) nodes_[arc].weight = arcs[arc].weight;
    }
    int64_t weight(int32_t top) const { return nodes_[top].weight; }
    void lower(int32_t top, int64_t by) {
        if (top >= 0) nodes_[top].weight -= by, nodes_[top].owed += by;
    }
    int32_t merge(int32_t a, int32_t b) {
        // Without recursion: chains get as long as there are arcs.
        int32_t result = -1;
        int32_t* hook = &result;
        while (a >= 0 && b >= 0) {
            if (nodes_[b].weight < nodes_[a].weight) std::swap(a, b);
            settle(a);
            *hook = a;
            std::swap(nodes_[a].left, nodes_[a].right);
            hook = &nodes_[a].left;
            a = nodes_[a].left;
        }
        *hook = a >= 0 ? a : b;
        return result;
    }
    int32_t pop(int32_t top) {
        settle(top);
        return merge(nodes_[top].left, nodes_[top].right);
    }

private:
    struct Node {
        int64_t weight = 0, owed = 0;
        int32_t left = -1, right = -1;
    };
    void settle(int32_t node) {
        int64_t owed = std::exchange(nodes_[node].owed, 0);
        if (owed == 0) return;
        lower(nodes_[node].left, owed);
        lower(nodes_[node].right, owed);
    }
    std::vector<Node> nodes_;
};

// Edmonds' algorithm as Tarjan runs it: walk back along cheapest arcs, shrink every cycle that closes into one
// node, and in the end open the cycles again, last first, each at the arc by which it is entered.
class CycleContraction {
public:
    CycleContraction(int32_t nodes, int32_t root, std::span<const Arc> arcs)
        : arcs_(arcs), sets_(nodes), heaps_(arcs), heap_(nodes, -1), walk_(nodes, kUnseen), into_(nodes, -1) {
        for (size_t arc = 0; arc < arcs.size(); ++arc) {
            int32_t at = arcs[arc].dst;
            heap_[at] = heaps_.merge(heap_[at], static_cast<int32_t>(arc));
        }
        walk_[root] = root;
    }

    std::vector<int32_t> solve() {
        for (int32_t node = 0; node < static_cast<int32_t>(heap_.size()); ++node) follow(node);
        for (auto cycle = cycles_.rbegin(); cycle != cycles_.rend(); ++cycle) {
            int32_t entry = into_[sets_.find(cycle->set)];
            sets_.undo_to(cycle->joins);
            for (int32_t arc : cycle->arcs) into_[sets_.find(arcs_[arc].dst)] = arc;
            into_[sets_.find(arcs_[entry].dst)] = entry;
        }
        return std::move(into_);
    }

private:
    static constexpr int32_t kUnseen = -1;
    struct Cycle {
        int32_t set;
        size_t joins;
        std::vector<int32_t> arcs;
    };

    void follow(int32_t start) {
        std::vector<int32_t> path, taken;
        for (int32_t at = sets_.find(start); walk_[at] == kUnseen;) {
            int32_t arc = take_cheapest(at);
            path.push_back(at);
            taken.push_back(arc);
            walk_[at] = start;
            at = sets_.find(arcs_[arc].src);
            if (walk_[at] == start) at = shrink(at, path, taken);
        }
        for (int32_t arc : taken) into_[sets_.find(arcs_[arc].dst)] = arc;
    }

    int32_t take_cheapest(int32_t set) {
        while (heap_[set] >= 0) {
            int32_t arc = heap_[set];
            int64_t weight = heaps_.weight(arc);
            heap_[set] = heaps_.pop(arc);
            if (sets_.find(arcs_[arc].src) == set) continue;
            heaps_.lower(heap_[set], weight);
            return arc;
        }
        throw std::invalid_argument("a node cannot be reached");
    }

    int32_t shrink(int32_t at, std::vector<int32_t>& path, std::vector<int32_t>& taken) {
        Cycle cycle{at, sets_.joins(), {}};
        int32_t merged = -1;
        for (bool closed = false; !closed;) {
            int32_t set = path.back();
            closed = set == at;
            merged = heaps_.merge(merged, heap_[set]);
            cycle.arcs.push_back(taken.back());
            path.pop_back(), taken.pop_back();
            sets_.join(at, set);
        }
        int32_t joined = sets_.find(at);
        heap_[joined] = merged;
        walk_[joined] = kUnseen;
        cycles_.push_back(std::move(cycle));
        return joined;
    }

    std::span<const Arc> arcs_;
    Sets sets_;
    ArcHeaps heaps_;
    std::vector<int32_t> heap_, walk_, into_;
    std::vector<Cycle> cycles_;
};

using Entry = std::pair<int64_t, int32_t>;
using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

// Every rank's share of the switches: distance from the nearest rank, which one, and by which link.
struct Nearest {
    std::vector<int64_t> distance;
    std::vector<int32_t> rank, came_by;

    Nearest(const RankNetwork& net, std::span<const int64_t> price)
        : distance(net.graph.nodes, std::numeric_limits<int64_t>::max()),
          rank(net.graph.nodes, -1),
          came_by(net.graph.nodes, -1) {
        Queue queue;
        for (int32_t r = 0; r < net.ranks; ++r) {
            distance[r] = 0, rank[r] = r;
            queue.push({0, r});
        }
        while (!queue.empty()) {
            auto [far, at] = queue.top();
            queue.pop();
            if (far > distance[at]) continue;
            for (int32_t link : net.leaving.links(at)) {
                int32_t node = net.graph.dst[link];
                if (far + price[link] >= distance[node]) continue;
                distance[node] = far + price[link], rank[node] = rank[at], came_by[node] = link;
                queue.push({distance[node], node});
            }
        }
    }
};

struct Edge {
    int64_t weight;
    int32_t link;
};

// The neighbours of each rank in an undirected tree, with the links that lead there.
using Neighbours = std::vector<std::vector<std::pair<int32_t, std::vector<int32_t>>>>;

std::vector<int32_t> reversed(const RankNetwork& net, const std::vector<int32_t>& route) {
    std::vector<int32_t> back;
    for (auto link = route.rbegin(); link != route.rend(); ++link) back.push_back(net.twin[*link]);
    return back;
}

// The links whose ends are nearest to different ranks, the cheapest way over such a link first.
std::vector<Edge> crossing_edges(const RankNetwork& net, std::span<const int64_t> price, const Nearest& near) {
    std::vector<Edge> edges;
    for (int32_t link = 0; link < net.links(); ++link) {
        int32_t a = net.graph.src[link], b = net.graph.dst[link];
        // A switch that no rank can reach is of no use.
        if (link > net.twin[link] || near.rank[a] == near.rank[b] || near.rank[a] < 0 || near.rank[b] < 0) continue;
        edges.push_back({near.distance[a] + price[link] + near.distance[b], link});
    }
    std::stable_sort(edges.begin(), edges.end(), [](auto& a, auto& b) { return a.weight < b.weight; });
    return edges;
}

// Kruskal's algorithm on the crossing edges. Adds the weights of the edges that it takes to `weight`.
Neighbours span_ranks(const RankNetwork& net, std::span<const int64_t> price, int64_t& weight) {
    Nearest near(net, price);
    Neighbours next(net.ranks);
    Sets sets(net.ranks);
    for (const Edge& edge : crossing_edges(net, price, near)) {
        int32_t a = near.rank[net.graph.src[edge.link]], b = near.rank[net.graph.dst[edge.link]];
        if (!sets.join(a, b)) continue;
        weight += edge.weight;
        std::vector<int32_t> there{edge.link};
        for (int32_t at = net.graph.src[edge.link]; at != a; at = net.graph.src[near.came_by[at]]) {
            there.insert(there.begin(), near.came_by[at]);
        }
        for (int32_t at = net.graph.dst[edge.link]; at != b; at = net.graph.src[near.came_by[at]]) {
            there.push_back(net.twin[near.came_by[at]]);
        }
        next[b].push_back({a, reversed(net, there)});
        next[a].push_back({b, std::move(there)});
    }
    return next;
}

// Walks a tree breadth first from `from`: the order of the ranks and the parent of each. Calls `visit` with each child
// and the route to it from its parent.
template <typename Visit>
std::pair<std::vector<int32_t>, std::vector<int32_t>> walk(const Neighbours& next, int32_t from, Visit visit) {
    std::vector<int32_t> order{from}, parent(next.size(), -1);
    for (size_t head = 0; head < order.size(); ++head) {
        for (auto& [child, route] : next[order[head]]) {
            if (child == parent[order[head]]) continue;
            parent[child] = order[head];
            order.push_back(child);
            visit(child, route);
        }
    }
    return {std::move(order), std::move(parent)};
}

// The middle of a longest path: the root from which the tree is least deep.
int32_t find_centre(const Neighbours& next) {
    auto ignore = [](int32_t, const std::vector<int32_t>&) {};
    int32_t end = walk(next, 0, ignore).first.back();
    auto [order, parent] = walk(next, end, ignore);
    int32_t length = 0;
    for (int32_t at = order.back(); at != end; at = parent[at]) ++length;
    int32_t centre = order.back();
    for (int32_t step = 0; step < length / 2; ++step) centre = parent[centre];
    return centre;
}

// Minimum spanning tree of the ranks under shortest paths through switches. It is enough to look at links whose ends
// are nearest to different ranks (K. Mehlhorn, "A faster approximation algorithm for the Steiner problem", 1988).
Column spanning_column(const RankNetwork& net, std::span<const int64_t> price, Halves halves, int32_t root) {
    int64_t weight = 0;
    Neighbours next = span_ranks(net, price, weight);
    if (root < 0) root = find_centre(next);
    Column column{weight * (halves.up + halves.down), true, {}};
    column.trees.root.assign(1, root);
    column.trees.up.assign(net.ranks, -1);
    column.trees.down.assign(net.ranks, -1);
    RouteTable table;
    walk(next, root, [&](int32_t child, const std::vector<int32_t>& route) {
        if (halves.down) column.trees.down[child] = table.number(route);
        if (halves.up) column.trees.up[child] = table.number(reversed(net, route));
    });
    column.trees.routes = table.take();
    return column;
}

// Cheapest paths between ranks, through switches only, each as one arc; `way` gives the links of an arc.
class Closure {
public:
    Closure(const RankNetwork& net, std::span<const int64_t> price) : net_(net) {
        if (net.graph.nodes == net.ranks) {
            for (int32_t link = 0; link < net.links(); ++link) {
                arcs_.push_back({net.graph.src[link], net.graph.dst[link], price[link]});
                ways_.push_back({link});
            }
            return;
        }
        for (int32_t rank = 0; rank < net.ranks; ++rank) reach(rank, price);
    }

    std::span<const Arc> arcs() const { return arcs_; }
    const std::vector<int32_t>& way(int32_t arc) const { return ways_[arc]; }

private:
    void reach(int32_t from, std::span<const int64_t> price) {
        std::vector<int64_t> distance(net_.graph.nodes, std::numeric_limits<int64_t>::max());
        std::vector<int32_t> came_by(net_.graph.nodes, -1);
        Queue queue;
        distance[from] = 0;
        queue.push({0, from});
        while (!queue.empty()) {
            auto [far, at] = queue.top();
            queue.pop();
            if (far > distance[at] || (at < net_.ranks && at != from)) continue;
            for (int32_t link : net_.leaving.links(at)) {
                int32_t node = net_.graph.dst[link];
                if (far + price[link] >= distance[node]) continue;
                distance[node] = far + price[link], came_by[node] = link;
                queue.push({distance[node], node});
            }
        }
        for (int32_t to = 0; to < net_.ranks; ++to) {
            if (to == from || came_by[to] < 0) continue;
            std::vector<int32_t> way;
            for (int32_t at = to; at != from; at = net_.graph.src[came_by[at]]) way.push_back(came_by[at]);
            std::reverse(way.begin(), way.end());
            arcs_.push_back({from, to, distance[to]});
            ways_.push_back(std::move(way));
        }
    }

    const RankNetwork& net_;
    std::vector<Arc> arcs_;
    std::vector<std::vector<int32_t>> ways_;
};

struct Half {
    int64_t price;
    int32_t root;
    std::vector<int32_t> arc;  // into (or, for the way up, out of) each rank
};

// One half of a column at a given root, or with root -1 at its own best root.
Half cheapest_half(int32_t ranks, std::span<const Arc> arcs, int32_t root) {
    std::vector<Arc> all(arcs.begin(), arcs.end());
    if (root < 0) {
        int64_t most = 1;
        for (const Arc& arc : arcs) most = std::max(most, arc.weight);
        // One arc out of an extra node, so dear that no tree takes two.
        for (int32_t rank = 0; rank < ranks; ++rank) all.push_back({ranks, rank, most * ranks});
    }
    Half half{0, root, cheapest_arborescence(root < 0 ? ranks + 1 : ranks, root < 0 ? ranks : root, all)};
    half.arc.resize(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
        if (half.arc[rank] >= static_cast<int32_t>(arcs.size())) half.root = rank, half.arc[rank] = -1;
        if (half.arc[rank] >= 0) half.price += arcs[half.arc[rank]].weight;
    }
    return half;
}

std::vector<Arc> turned(std::span<const Arc> arcs) {
    std::vector<Arc> back(arcs.begin(), arcs.end());
    for (Arc& arc : back) std::swap(arc.src, arc.dst);
    return back;
}

Column directed_column(const RankNetwork& net, std::span<const int64_t> price, Halves halves, int32_t root,
                       bool every_root) {
    Closure closure(net, price);
    std::vector<Arc> back = turned(closure.arcs());
    auto halves_at = [&](int32_t at) {
        Half none{0, at, std::vector<int32_t>(net.ranks, -1)};
        return std::pair(halves.up ? cheapest_half(net.ranks, back, at) : none,
                         halves.down ? cheapest_half(net.ranks, closure.arcs(), at) : none);
    };
    auto best = halves_at(root);
    Column column{best.first.price + best.second.price, true, {}};
    if (root < 0 && halves.up && halves.down && best.first.root != best.second.root) {
        auto found = halves_at(best.second.root);
        int64_t least = found.first.price + found.second.price;
        for (int32_t at = 0; every_root && at < net.ranks; ++at) {
            auto other = halves_at(at);
            if (other.first.price + other.second.price >= least) continue;
            least = other.first.price + other.second.price;
            found = std::move(other);
        }
        column.exact = every_root || least == column.price;
        if (column.exact) column.price = least;
        best = std::move(found);
    }
    RouteTable table;
    for (const Half* half : {&best.first, &best.second}) {
        std::vector<int32_t>& into = half == &best.first ? column.trees.up : column.trees.down;
        for (int32_t arc : half->arc) into.push_back(arc < 0 ? -1 : table.number(closure.way(arc)));
    }
    column.trees.root.assign(1, halves.down ? best.second.root : best.first.root);
    column.trees.routes = table.take();
    return column;
}

}  // namespace

std::vector<int32_t> cheapest_arborescence(int32_t nodes, int32_t root, std::span<const Arc> arcs) {
    return CycleContraction(nodes, root, arcs).solve();
}

Column cheapest_column(const RankNetwork& network, std::span<const int64_t> price, Halves halves, int32_t root,
                       bool every_root) {
    bool even = network.symmetric();
    for (int32_t link = 0; even && link < network.links(); ++link) even = price[link] == price[network.twin[link]];
    return even ? spanning_column(network, price, halves, root)
                : directed_column(network, price, halves, root, every_root);
}

}  // namespace weft
