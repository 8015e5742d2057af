// Maximum flow and least cut between what supplies and what drains, by push-relabel.
//
// A. V. Goldberg, R. E. Tarjan, "A new approach to the maximum-flow problem", J. ACM 35(4), 1988; labels are set anew
// by breadth-first search as in B. V. Cherkassky, A. V. Goldberg, "On implementing the push-relabel method",
// Algorithmica 19, 1997. Only the first phase is run: excess that cannot be drained stays where it is, because nobody
// here asks for the flow, only for its value and the cut.
//
// Python half: src/weft/bounds/tight_cuts.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/graph.hpp"

namespace weft {

class MaxFlow {
public:
    // Capacities are the graph's bandwidths. Links between the same two nodes become one arc.
    explicit MaxFlow(const Graph& graph);

    // Sends what each node supplies to where it drains; link capacities are multiplied by `scale`. Returns how much
    // arrives. Supply, drain and capacities must sum to less than 2^63 each.
    int64_t run(int64_t scale, std::span<const int64_t> supply, std::span<const int64_t> drain);

    // After a `run` in which not everything arrived: whether more could be sent from a node. Those that could are the
    // far side of a least cut, the smallest there is.
    bool drains(int32_t node) const { return label_[node] < unreachable_; }

private:
    struct Arc {
        int32_t to;
        int32_t back;  // index of the arc the other way
    };

    void relabel_all();
    void discharge(int32_t node);
    bool push_from(int32_t node);
    void lift(int32_t node);
    void close_gap(int32_t label);
    void activate(int32_t node);

    int32_t nodes_;
    int32_t unreachable_;
    std::vector<int32_t> first_;     // arcs of node i are first_[i] .. first_[i + 1]
    std::vector<Arc> arcs_;
    std::vector<int64_t> capacity_;  // per arc
    std::vector<int64_t> left_;      // residual capacity, per arc
    std::vector<int64_t> excess_, drain_;
    std::vector<int32_t> label_, current_, population_, queue_;
    std::vector<std::vector<int32_t>> active_;  // by label
    int32_t highest_ = 0;
    int64_t arrived_ = 0;
    int64_t lifts_ = 0;
};

}  // namespace weft
