// The order of tokens: pools of things that are held for a while, such as buffers, and one order in which all ranks take
// them.
//
// The order is one for all pools and ranks: a rank with a free token and nothing left in the order adds to it, of the
// tasks that wait there for their first token, the one of the smallest priority, then the one that has waited longest.
// Were ranks free to choose, one could fill its buffers with what another has no room for, and the other way round.
//
// Python half: src/weft/simulation/workflow.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "simulation/workflow.hpp"

namespace weft {

class Admission {
public:
    struct Grant {
        int32_t task, rank, pool;
    };

    explicit Admission(const WorkflowInput& input)
        : input_(input),
          pools_(input.capacity.size()),
          rank_pools_(pools_ * input.ranks),
          ordered_(input.tasks.size(), 0),
          waits_for_(input.tasks.size() * (pools_ ? input.ranks : 0), kNone) {
        for (size_t rank_pool = 0; rank_pool < rank_pools_.size(); ++rank_pool)
            rank_pools_[rank_pool].free = input.capacity[rank_pool % pools_];
    }

    void ask(int32_t task, int32_t rank, int32_t pool, int64_t now) {
        waits_for_[place(task, rank)] = pool;
        if (!ordered_[task]) {
            auto& waiting = rank_pool(pool, rank).waiting;
            waiting.push_back({input_.tasks[task].priority, now, task});
            std::push_heap(waiting.begin(), waiting.end(), later);
        }
        touch(pool, rank);
    }

    void release(int32_t pool, int32_t rank) {
        ++rank_pool(pool, rank).free;
        touch(pool, rank);
    }

    // The pool that a task waits for at a rank, or none.
    int32_t wanted(int32_t task, int32_t rank) const { return pools_ ? waits_for_[place(task, rank)] : kNone; }

    // The tokens that are granted now; ranks in order, and of each rank its pools in order.
    const std::vector<Grant>& grant() {
        grants_.clear();
        std::sort(touched_.begin(), touched_.end());
        round_.swap(touched_);
        touched_.clear();
        for (int64_t number : round_) {
            rank_pools_[number].touched = false;
            serve(static_cast<int32_t>(number / static_cast<int64_t>(pools_)),
                  static_cast<int32_t>(number % static_cast<int64_t>(pools_)));
        }
        return grants_;
    }

private:
    struct Waiting {
        int64_t priority, since;
        int32_t task;
    };
    struct RankPool {  // a pool at a rank
        int32_t free = 0;
        size_t next = 0;  // how far in the order it is
        bool touched = false;
        std::vector<Waiting> waiting;
    };

    static bool later(const Waiting& a, const Waiting& b) {
        if (a.priority != b.priority) return a.priority > b.priority;
        return a.since != b.since ? a.since > b.since : a.task > b.task;
    }

    size_t place(int32_t task, int32_t rank) const { return static_cast<size_t>(task) * input_.ranks + rank; }
    RankPool& rank_pool(int32_t pool, int32_t rank) { return rank_pools_[static_cast<size_t>(rank) * pools_ + pool]; }

    void touch(int32_t pool, int32_t rank) {
        RankPool& here = rank_pool(pool, rank);
        if (here.touched) return;
        here.touched = true;
        touched_.push_back(static_cast<int64_t>(rank) * static_cast<int64_t>(pools_) + pool);
    }

    void serve(int32_t rank, int32_t pool) {
        RankPool& here = rank_pool(pool, rank);
        while (here.free > 0) {
            while (here.next < order_.size() && !(input_.tasks[order_[here.next]].pools >> pool & 1)) ++here.next;
            if (here.next == order_.size() && !extend(here)) return;
            int32_t task = order_[here.next];
            if (waits_for_[place(task, rank)] != pool) return;
            waits_for_[place(task, rank)] = kNone;
            --here.free;
            ++here.next;
            grants_.push_back({task, rank, pool});
        }
    }

    bool extend(RankPool& here) {
        while (!here.waiting.empty()) {
            std::pop_heap(here.waiting.begin(), here.waiting.end(), later);
            int32_t task = here.waiting.back().task;
            here.waiting.pop_back();
            if (ordered_[task]) continue;
            ordered_[task] = 1;
            order_.push_back(task);
            return true;
        }
        return false;
    }

    const WorkflowInput& input_;
    size_t pools_;
    std::vector<RankPool> rank_pools_;
    std::vector<uint8_t> ordered_;
    std::vector<int32_t> waits_for_;  // by task and rank
    std::vector<int32_t> order_;
    std::vector<int64_t> touched_, round_;
    std::vector<Grant> grants_;
};

}  // namespace weft
