// Python half: src/weft/bounds/tight_cuts.py.
#include "bounds/maxflow.hpp"

#include <algorithm>
#include <numeric>

namespace weft {

MaxFlow::MaxFlow(const Graph& graph)
    : nodes_(graph.nodes), unreachable_(graph.nodes + 1), first_(graph.nodes + 1, 0), active_(graph.nodes + 1) {
    // Sorted by unordered pair, so that cables, parallel links and one-way links all become one pair of arcs.
    std::vector<int32_t> order(graph.src.size());
    std::iota(order.begin(), order.end(), 0);
    auto low = [&](int32_t link) { return std::min(graph.src[link], graph.dst[link]); };
    auto high = [&](int32_t link) { return std::max(graph.src[link], graph.dst[link]); };
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return low(a) != low(b) ? low(a) < low(b) : high(a) < high(b); });
    struct Pair {
        int32_t low, high;
        int64_t up, down;
    };
    std::vector<Pair> pairs;
    for (int32_t link : order) {
        bool known = !pairs.empty() && pairs.back().low == low(link) && pairs.back().high == high(link);
        if (!known) pairs.push_back({low(link), high(link), 0, 0});
        (graph.src[link] == low(link) ? pairs.back().up : pairs.back().down) += graph.bandwidth[link];
    }
    for (const Pair& pair : pairs) ++first_[pair.low + 1], ++first_[pair.high + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    arcs_.resize(2 * pairs.size());
    capacity_.resize(2 * pairs.size());
    std::vector<int32_t> next(first_.begin(), first_.end() - 1);
    for (const Pair& pair : pairs) {
        int32_t up = next[pair.low]++, down = next[pair.high]++;
        arcs_[up] = {pair.high, down};
        arcs_[down] = {pair.low, up};
        capacity_[up] = pair.up;
        capacity_[down] = pair.down;
    }
    label_.resize(nodes_);
    current_.resize(nodes_);
    population_.resize(nodes_ + 2);
}

int64_t MaxFlow::run(int64_t scale, std::span<const int64_t> supply, std::span<const int64_t> drain) {
    left_.resize(capacity_.size());
    std::transform(capacity_.begin(), capacity_.end(), left_.begin(), [=](int64_t c) { return c * scale; });
    excess_.assign(supply.begin(), supply.end());
    drain_.assign(drain.begin(), drain.end());
    arrived_ = 0;
    relabel_all();
    while (highest_ > 0) {
        if (active_[highest_].empty()) {
            --highest_;
            continue;
        }
        int32_t node = active_[highest_].back();
        active_[highest_].pop_back();
        // A gap or a lift may have moved it since it was queued.
        if (label_[node] == highest_) discharge(node);
        if (lifts_ > nodes_) relabel_all();
    }
    // Where everything arrived there is no cut to tell.
    if (arrived_ < std::accumulate(supply.begin(), supply.end(), int64_t{0})) relabel_all();
    return arrived_;
}

void MaxFlow::activate(int32_t node) {
    int32_t label = label_[node];
    if (label >= unreachable_) return;
    active_[label].push_back(node);
    highest_ = std::max(highest_, label);
}

// Exact distances to the nearest drain; a node that reaches none of them takes no further part.
void MaxFlow::relabel_all() {
    lifts_ = 0;
    std::fill(label_.begin(), label_.end(), unreachable_);
    std::fill(population_.begin(), population_.end(), 0);
    queue_.clear();
    for (int32_t node = 0; node < nodes_; ++node) {
        if (drain_[node] <= 0) continue;
        label_[node] = 1;
        queue_.push_back(node);
    }
    for (size_t head = 0; head < queue_.size(); ++head) {
        int32_t node = queue_[head];
        ++population_[label_[node]];
        for (int32_t arc = first_[node]; arc < first_[node + 1]; ++arc) {
            int32_t before = arcs_[arc].to;
            if (label_[before] < unreachable_ || left_[arcs_[arc].back] <= 0) continue;
            label_[before] = label_[node] + 1;
            queue_.push_back(before);
        }
    }
    std::copy(first_.begin(), first_.end() - 1, current_.begin());
    for (; highest_ > 0; --highest_) active_[highest_].clear();
    for (int32_t node : queue_) {
        if (excess_[node] > 0) activate(node);
    }
}

void MaxFlow::discharge(int32_t node) {
    while (excess_[node] > 0 && label_[node] < unreachable_) {
        if (push_from(node)) return;
        lift(node);
    }
}

// Pushes along arcs that lead one label down; true when nothing is left.
bool MaxFlow::push_from(int32_t node) {
    if (drain_[node] > 0) {
        int64_t amount = std::min(excess_[node], drain_[node]);
        excess_[node] -= amount;
        drain_[node] -= amount;
        arrived_ += amount;
        if (excess_[node] == 0) return true;
    }
    for (int32_t& arc = current_[node]; arc < first_[node + 1]; ++arc) {
        int32_t to = arcs_[arc].to;
        if (left_[arc] <= 0 || label_[to] + 1 != label_[node]) continue;
        int64_t amount = std::min(excess_[node], left_[arc]);
        left_[arc] -= amount;
        left_[arcs_[arc].back] += amount;
        if (excess_[to] == 0) {
            excess_[to] = amount;
            activate(to);
        } else {
            excess_[to] += amount;
        }
        excess_[node] -= amount;
        if (excess_[node] == 0) return true;
    }
    return false;
}

void MaxFlow::lift(int32_t node) {
    int32_t least = unreachable_;
    for (int32_t arc = first_[node]; arc < first_[node + 1]; ++arc) {
        if (left_[arc] > 0) least = std::min(least, label_[arcs_[arc].to] + 1);
    }
    int32_t before = label_[node];
    label_[node] = std::min(least, unreachable_);
    current_[node] = first_[node];
    ++lifts_;
    if (label_[node] < unreachable_) ++population_[label_[node]];
    if (--population_[before] == 0) close_gap(before);
}

// No node has this label any more, so no node above it reaches a drain.
void MaxFlow::close_gap(int32_t label) {
    for (int32_t node = 0; node < nodes_; ++node) {
        if (label_[node] <= label || label_[node] >= unreachable_) continue;
        --population_[label_[node]];
        label_[node] = unreachable_;
    }
}

}  // namespace weft
