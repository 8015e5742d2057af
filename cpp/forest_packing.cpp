#include "forest_packing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <stdexcept>

namespace weft {

namespace {

// 2^x, drawn with straight lines between whole x: as good as the real one for prices, and the same everywhere.
double steep(double x) {
    x = std::max(x, -60.0);
    double whole = std::floor(x);
    return std::ldexp(1.0 + (x - whole), static_cast<int>(whole));
}

// Grows one tree at a time: always the cheapest rank next, where a rank costs the links that lead to it from
// its parent, and something for its depth. With depth_price 0 that is Prim's algorithm.
class Gardener {
public:
    Gardener(const Network& net, bool outward)
        : near_(outward ? net.graph.src : net.graph.dst),
          far_(outward ? net.graph.dst : net.graph.src),
          adjacency_(outward ? net.leaving : net.entering),
          outward_(outward),
          ranks_(net.ranks),
          key_(net.graph.nodes),
          origin_(net.graph.nodes),
          came_by_(net.graph.nodes),
          depth_(net.ranks) {}

    // Calls visit(rank, links of the route between it and its parent, in the direction of travel).
    template <typename Visit>
    void grow(int32_t root, std::span<const double> price, double depth_price, Visit visit) {
        constexpr double kFar = std::numeric_limits<double>::infinity();
        std::fill(key_.begin(), key_.end(), kFar);
        std::fill(depth_.begin(), depth_.end(), -1);
        queue_ = {};
        key_[root] = 0, origin_[root] = root;
        queue_.push({0, root});
        int32_t joined = 0;
        while (!queue_.empty() && joined < ranks_) {
            auto [key, at] = queue_.top();
            queue_.pop();
            if (key > key_[at] || (at < ranks_ && depth_[at] >= 0)) continue;
            double base = key;
            if (at < ranks_) {
                depth_[at] = at == root ? 0 : depth_[origin_[at]] + 1;
                if (at != root) visit(at, trace(at));
                ++joined;
                base = depth_price * depth_[at];
            }
            int32_t origin = at < ranks_ ? at : origin_[at];
            for (int32_t link : adjacency_.links(at)) {
                int32_t node = far_[link];
                if (node < ranks_ && depth_[node] >= 0) continue;
                double reach = base + price[link];
                if (reach >= key_[node]) continue;
                key_[node] = reach, origin_[node] = origin, came_by_[node] = link;
                queue_.push({reach, node});
            }
        }
        if (joined < ranks_) throw std::invalid_argument("a rank cannot be reached");
    }

private:
    const std::vector<int32_t>& trace(int32_t rank) {
        path_.clear();
        for (int32_t at = rank; at != origin_[rank]; at = near_[came_by_[at]]) path_.push_back(came_by_[at]);
        if (outward_) std::reverse(path_.begin(), path_.end());
        return path_;
    }

    using Entry = std::pair<double, int32_t>;
    std::span<const int32_t> near_, far_;
    const Adjacency& adjacency_;
    bool outward_;
    int32_t ranks_;
    std::vector<double> key_;
    std::vector<int32_t> origin_, came_by_, depth_, path_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

class Packer {
public:
    Packer(const Network& net, const PackingOptions& options)
        : net_(net),
          options_(options),
          out_(net, true),
          in_(net, false),
          dice_(options.seed),
          price_(net.links()) {
        auto size = static_cast<size_t>(options.trees) * net.ranks;
        result_.trees.up.assign(size, -1);
        result_.trees.down.assign(size, -1);
        result_.load.assign(net.links(), 0);
        slowest_ = *std::max_element(options.slot.begin(), options.slot.end());
        for (int32_t tree = 0; tree < options.trees; ++tree) {
            result_.trees.root.push_back(options.roots[tree % options.roots.size()]);
        }
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
        set_prices(0.01);
        double depth_price = options_.depth_price * edge_cost_;
        double cost = 0;
        int32_t edges = 0;
        int32_t root = result_.trees.root[tree];
        auto base = static_cast<size_t>(tree) * net_.ranks;
        bool mirrored = net_.symmetric() && options_.halves.up && options_.halves.down;
        auto settle = [&](std::vector<int32_t>& half) {
            return [&](int32_t rank, const std::vector<int32_t>& links) {
                half[base + rank] = take(links);
                for (int32_t link : links) cost += price_[link];
                ++edges;
                if (!mirrored) return;
                back_.clear();
                for (auto link = links.rbegin(); link != links.rend(); ++link) back_.push_back(net_.twin[*link]);
                result_.trees.up[base + rank] = take(back_);
            };
        };
        if (options_.halves.down) out_.grow(root, price_, depth_price, settle(result_.trees.down));
        if (options_.halves.up && !mirrored) in_.grow(root, price_, depth_price, settle(result_.trees.up));
        edge_cost_ = cost / std::max(edges, 1);
    }

    int32_t take(const std::vector<int32_t>& links) {
        for (int32_t link : links) ++result_.load[link];
        return table_.number(links);
    }

    // A link's price doubles with every so much load; loads count from the heaviest, to stay within range.
    void set_prices(double noise) {
        double heaviest = 0;
        for (int32_t link = 0; link < net_.links(); ++link) heaviest = std::max(heaviest, time(link));
        for (int32_t link = 0; link < net_.links(); ++link) {
            double doublings = options_.sharpness * (time(link) - heaviest) / slowest_;
            price_[link] = options_.slot[link] / slowest_ * steep(doublings) * (1 + noise * dice_.fraction());
        }
    }

    double time(int32_t link) const { return static_cast<double>(result_.load[link]) * options_.slot[link]; }

    const Network& net_;
    const PackingOptions& options_;
    Gardener out_, in_;
    Dice dice_;
    RouteTable table_;
    Packing result_;
    std::vector<double> price_;
    std::vector<int32_t> back_;
    double slowest_ = 1, edge_cost_ = 1;
};

}  // namespace

Packing pack_trees(const Network& network, const PackingOptions& options) { return Packer(network, options).pack(); }

}  // namespace weft
