// Python half: src/weft/bounds/tree_columns.py.
#include "synthesis/tree_packing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <stdexcept>

namespace weft {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// 2^x, drawn with straight lines between whole x: as good as the real one for prices, and the same everywhere.
double steep(double x) {
    x = std::max(x, -24.0);
    double whole = std::floor(x);
    return std::ldexp(1.0 + (x - whole), static_cast<int>(whole));
}

// Grows one tree at a time: always the cheapest rank next, where a rank costs the links that lead to it from its
// parent, and something for its parent's depth. Without the latter that is Prim's algorithm.
class TreeGrower {
public:
    TreeGrower(const RankNetwork& net, std::span<const double> slot, std::span<const double> price, bool outward)
        : net_(net),
          slot_(slot),
          price_(price),
          near_(outward ? net.graph.src : net.graph.dst),
          far_(outward ? net.graph.dst : net.graph.src),
          leaving_(outward ? net.leaving : net.entering),
          entering_(outward ? net.entering : net.leaving),
          outward_(outward),
          key_(net.graph.nodes),
          depth_(net.ranks),
          came_by_(net.graph.nodes) {}

    // Calls visit(rank, links between it and its parent, in the direction of travel). If visit raises the prices of
    // those links, the rest of the tree takes notice: or a switch would make stars of all trees.
    template <typename Visit>
    void grow(int32_t root, double depth_price, Visit visit) {
        std::fill(key_.begin(), key_.end(), kNever);
        std::fill(depth_.begin(), depth_.end(), kNever);
        queue_ = {};
        depth_price_ = depth_price;
        depth_[root] = 0;
        look_around(root, 0);
        int32_t joined = 1;
        while (joined < net_.ranks) {
            if (queue_.empty()) throw std::invalid_argument("a rank cannot be reached");
            auto [key, at] = queue_.top();
            queue_.pop();
            if (key != key_[at] || member(at)) continue;  // labels rise and fall: an old entry may be lower, too
            if (net_.graph.nodes > net_.ranks && stale(at, key)) {
                repair(at);
                continue;
            }
            if (at >= net_.ranks) {
                look_around(at, key);
                continue;
            }
            int32_t parent = trace(at);
            depth_[at] = depth_[parent] + travel();
            visit(at, path_);
            ++joined;
            look_around(at, depth_price_ * depth_[at]);
        }
    }

private:
    bool member(int32_t node) const { return node < net_.ranks && depth_[node] < kNever; }

    void look_around(int32_t at, double base) {
        for (int32_t link : leaving_.links(at)) {
            int32_t node = far_[link];
            if (member(node)) continue;
            double reach = base + price_[link];
            // A label may be too low by now, but only where something rose, on networks with switches.
            if (reach >= key_[node] && (net_.graph.nodes == net_.ranks || !stale(node, reach))) continue;
            if (at >= net_.ranks && depends(at, node)) continue;
            set(node, reach, link);
        }
    }

    void set(int32_t node, double key, int32_t link) {
        key_[node] = key, came_by_[node] = link;
        queue_.push({key, node});
    }

    // What a node that has been reached costs at present prices.
    double cost(int32_t node) const {
        if (key_[node] == kNever) return kNever;
        double total = 0;
        do {
            total += price_[came_by_[node]];
            node = near_[came_by_[node]];
        } while (node >= net_.ranks);
        return total + depth_price_ * depth_[node];
    }

    // Whether a node costs more than that; with a margin, since sums depend on their order.
    bool stale(int32_t node, double key) const { return cost(node) > key * (1 + 1e-9); }

    // Whether the way to switch `at` leads through `node`.
    bool depends(int32_t at, int32_t node) const {
        for (; at >= net_.ranks; at = near_[came_by_[at]]) {
            if (at == node) return true;
        }
        return false;
    }

    // The way to a node became dearer: look for the best one anew, first to the switch it came through.
    void repair(int32_t node) {
        int32_t before = near_[came_by_[node]];
        if (before >= net_.ranks && stale(before, key_[before])) repair_one(before);
        repair_one(node);
    }

    void repair_one(int32_t node) {
        double best = kNever;
        int32_t by = -1;
        for (int32_t link : entering_.links(node)) {
            int32_t from = near_[link];
            if (from < net_.ranks ? !member(from) : key_[from] == kNever || depends(from, node)) continue;
            double reach = (from < net_.ranks ? depth_price_ * depth_[from] : cost(from)) + price_[link];
            if (reach < best) best = reach, by = link;
        }
        set(node, best, by);
    }

    // The way a rank was reached, into path_; returns the member it starts from.
    int32_t trace(int32_t rank) {
        path_.clear();
        int32_t at = rank;
        do {
            path_.push_back(came_by_[at]);
            at = near_[came_by_[at]];
        } while (at >= net_.ranks);
        if (outward_) std::reverse(path_.begin(), path_.end());
        return at;
    }

    double travel() const {
        double slowest = 0;
        for (int32_t link : path_) slowest = std::max(slowest, slot_[link]);
        return slowest;
    }

    using Entry = std::pair<double, int32_t>;
    const RankNetwork& net_;
    std::span<const double> slot_, price_;
    std::span<const int32_t> near_, far_;
    const Adjacency &leaving_, &entering_;
    bool outward_;
    double depth_price_ = 0;
    std::vector<double> key_, depth_;  // depth in slots, infinite outside the tree
    std::vector<int32_t> came_by_, path_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

class Packer {
public:
    Packer(const RankNetwork& net, const PackingOptions& options)
        : net_(net),
          options_(options),
          price_(net.links()),
          out_(net, options.slot, price_, true),
          in_(net, options.slot, price_, false),
          random_(options.seed),
          slowest_(*std::max_element(options.slot.begin(), options.slot.end())),
          fastest_(*std::min_element(options.slot.begin(), options.slot.end())) {
        auto size = static_cast<size_t>(options.trees) * net.ranks;
        result_.trees.up.assign(size, -1);
        result_.trees.down.assign(size, -1);
        result_.load.assign(net.links(), 0);
        for (int32_t tree = 0; tree < options.trees; ++tree) {
            result_.trees.root.push_back(options.roots[tree % options.roots.size()]);
        }
        for (double slot : options.slot) rise_.push_back(steep(options.sharpness * slot / slowest_));
    }

    Packing pack() {
        for (int32_t sweep = 0; sweep <= options_.sweeps; ++sweep) {
            for (int32_t tree = 0; tree < options_.trees; ++tree) {
                if (sweep > 0) lift(tree);
                plant(tree);
            }
        }
        set_prices(0);
        result_.price = price_;
        result_.trees.routes = table_.take();
        return std::move(result_);
    }

private:
    void lift(int32_t tree) {
        for (std::vector<int32_t>* half : {&result_.trees.up, &result_.trees.down}) {
            for (int32_t rank = 0; rank < net_.ranks; ++rank) {
                int32_t route = (*half)[static_cast<size_t>(tree) * net_.ranks + rank];
                if (route < 0) continue;
                for (int32_t link : table_.links(route)) --result_.load[link];
            }
        }
    }

    void plant(int32_t tree) {
        risen_.clear();
        set_prices(0.01);
        double depth_price = options_.depth_price * edge_cost_ / fastest_;
        double cost = 0;
        int32_t edges = 0;
        int32_t root = result_.trees.root[tree];
        auto base = static_cast<size_t>(tree) * net_.ranks;
        bool mirrored = net_.symmetric() && options_.halves.up && options_.halves.down;
        auto settle = [&](std::vector<int32_t>& half) {
            return [&](int32_t rank, const std::vector<int32_t>& links) {
                for (int32_t link : links) cost += price_[link];
                half[base + rank] = take(links);
                if (mirrored) {
                    back_.clear();
                    for (auto link = links.rbegin(); link != links.rend(); ++link) back_.push_back(net_.twin[*link]);
                    result_.trees.up[base + rank] = take(back_);
                }
                if (++edges % options_.raise_every == 0) raise_prices();
            };
        };
        if (options_.halves.down) out_.grow(root, depth_price, settle(result_.trees.down));
        if (options_.halves.up && !mirrored) in_.grow(root, depth_price, settle(result_.trees.up));
        edge_cost_ = cost / std::max(edges, 1);
    }

    int32_t take(const std::vector<int32_t>& links) {
        for (int32_t link : links) {
            ++result_.load[link];
            risen_.push_back(link);
        }
        return table_.number(links);
    }

    void raise_prices() {
        for (int32_t link : risen_) price_[link] *= rise_[link];
        risen_.clear();
    }

    // A link's price doubles with every so much load; loads count from the heaviest, to stay within range.
    void set_prices(double noise) {
        double heaviest = 0;
        for (int32_t link = 0; link < net_.links(); ++link) heaviest = std::max(heaviest, time(link));
        for (int32_t link = 0; link < net_.links(); ++link) {
            double doublings = options_.sharpness * (time(link) - heaviest) / slowest_;
            price_[link] = options_.slot[link] / slowest_ * steep(doublings) * (1 + noise * random_.fraction());
        }
    }

    double time(int32_t link) const { return static_cast<double>(result_.load[link]) * options_.slot[link]; }

    const RankNetwork& net_;
    const PackingOptions& options_;
    std::vector<double> price_, rise_;
    TreeGrower out_, in_;
    RandomNumbers random_;
    RouteTable table_;
    Packing result_;
    std::vector<int32_t> back_, risen_;
    double slowest_, fastest_, edge_cost_ = 1;
};

}  // namespace

std::vector<int32_t> rank_eccentricities(const RankNetwork& network) {
    std::vector<int32_t> farthest(network.ranks, 0), hops(network.graph.nodes), queue;
    for (bool outward : {true, false}) {
        const Adjacency& leaving = outward ? network.leaving : network.entering;
        std::span<const int32_t> far = outward ? network.graph.dst : network.graph.src;
        for (int32_t rank = 0; rank < network.ranks; ++rank) {
            std::fill(hops.begin(), hops.end(), -1);
            queue.assign(1, rank);
            hops[rank] = 0;
            for (size_t head = 0; head < queue.size(); ++head) {
                int32_t at = queue[head];
                if (at < network.ranks) farthest[rank] = std::max(farthest[rank], hops[at]);
                for (int32_t link : leaving.links(at)) {
                    if (hops[far[link]] >= 0) continue;
                    hops[far[link]] = hops[at] + 1;
                    queue.push_back(far[link]);
                }
            }
        }
        if (network.symmetric()) break;
    }
    return farthest;
}

Packing pack_trees(const RankNetwork& network, const PackingOptions& options) {
    return Packer(network, options).pack();
}

}  // namespace weft
