// Python half: src/weft/algorithms/multitree/growth.py.
#include "synthesis/multitree_growth.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace weft {

TreeEdges::TreeEdges(size_t links, int64_t edges) : by_link_(links, -1) {
    for (auto* column : {&step, &tree, &parent, &child, &route}) column->reserve(edges);
}

void TreeEdges::add(int32_t in_step, int32_t to_tree, int32_t from, int32_t to, int32_t by_route) {
    step.push_back(in_step);
    tree.push_back(to_tree);
    parent.push_back(from);
    child.push_back(to);
    route.push_back(by_route);
}

void TreeEdges::add(int32_t in_step, int32_t to_tree, int32_t from, int32_t to, std::span<const int32_t> path) {
    add(in_step, to_tree, from, to, number(path));
}

int32_t TreeEdges::number(std::span<const int32_t> path) {
    auto next = static_cast<int32_t>(routes.offsets.size()) - 1;
    int32_t& known =
        path.size() == 1 ? by_link_[path.front()] : by_path_.try_emplace({path.begin(), path.end()}, -1).first->second;
    if (known < 0) {
        known = next;
        routes.links.insert(routes.links.end(), path.begin(), path.end());
        routes.offsets.push_back(static_cast<int64_t>(routes.links.size()));
    }
    return known;
}

namespace {

class Grower {
public:
    Grower(const Graph& graph, const GrowthInput& input, std::span<const int32_t> priority, bool paper_order)
        : graph_(graph),
          input_(input),
          priority_(priority),
          paper_order_(paper_order),
          leaving_(graph.nodes, graph.src),
          free_(graph.src.size()),
          sends_(input.ranks),
          trees_(input.trees),
          came_by_(graph.nodes, -1),
          seen_(graph.nodes, 0),
          has_ranks_(graph.nodes, 0),
          edges_(graph.src.size(), input.edges()) {
        for (size_t link = 0; link < graph.src.size(); ++link) {
            if (graph.dst[link] < input.ranks) has_ranks_[graph.src[link]] = 1;
        }
        for (int32_t tree = 0; tree < input.trees; ++tree) {
            trees_[tree].member.assign(input.ranks, 0);
            join(tree, input.root(tree));
        }
    }

    TreeEdges grow() {
        std::vector<int32_t> order(trees_.size());
        std::iota(order.begin(), order.end(), 0);
        for (int32_t step = 0; static_cast<int64_t>(edges_.step.size()) < input_.edges(); ++step) {
            size_t before = edges_.step.size();
            grow_step(step, order);
            if (edges_.step.size() > before) continue;
            if (pass_all_) throw std::runtime_error("no tree can grow");
            pass_all_ = true;
        }
        return std::move(edges_);
    }

private:
    struct Tree {
        std::vector<uint8_t> member;
        std::vector<int32_t> frontier;  // members that may still find children, in the order they joined
        size_t joined = 0;
        // Within one step: the first `parents` of the frontier may be parents, those before `next` have failed.
        // Links only get scarcer during a step, so a tree that failed once fails until the next step.
        size_t parents = 0, next = 0;
    };

    void join(int32_t tree, int32_t rank) {
        trees_[tree].member[rank] = 1;
        trees_[tree].frontier.push_back(rank);
        ++trees_[tree].joined;
    }

    void grow_step(int32_t step, std::vector<int32_t>& order) {
        free_all();
        for (Tree& tree : trees_) {
            tree.parents = tree.frontier.size();
            tree.next = 0;
        }
        for (bool going = true; going;) {
            bool any = false, last = false;
            for (int32_t tree : order) {
                last = !complete(tree) && add_edge(tree, step);
                any = any || last;
            }
            if (paper_order_) sort(order);
            // The authors' loop looks at the last tree of a round only, and so ends some steps early.
            going = paper_order_ ? last : any;
        }
        for (Tree& tree : trees_) prune(tree);
    }

    void free_all() {
        std::copy(input_.capacity.begin(), input_.capacity.end(), free_.begin());
        std::fill(sends_.begin(), sends_.end(), 0);
        for (size_t link = 0; link < free_.size(); ++link) {
            if (graph_.src[link] < input_.ranks) sends_[graph_.src[link]] += free_[link];
        }
        senders_ = std::ranges::count_if(sends_, [](int64_t count) { return count > 0; });
    }

    bool complete(int32_t tree) const { return trees_[tree].joined == static_cast<size_t>(input_.ranks); }

    void sort(std::vector<int32_t>& order) const {
        std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return priority_[a] != priority_[b] ? priority_[a] > priority_[b] : a > b;
        });
    }

    bool add_edge(int32_t id, int32_t step) {
        Tree& tree = trees_[id];
        if (senders_ == 0) return false;
        for (; tree.next < tree.parents; ++tree.next) {
            int32_t parent = tree.frontier[tree.next];
            if (sends_[parent] == 0) continue;
            int32_t child = find_child(tree, parent);
            if (child < 0) continue;
            take_path(parent, child);
            edges_.add(step, id, parent, child, path_);
            join(id, child);
            return true;
        }
        return false;
    }

    // Nearest rank outside the tree over free links, or -1. Spines are passed through; a switch with ranks of its own
    // is where a path ends: its ranks join first and carry on from there, which takes fewer links. Only on graphs
    // where that gets stuck is every switch passed.
    int32_t find_child(const Tree& tree, int32_t parent) {
        ++epoch_;
        queue_.assign(1, parent);
        seen_[parent] = epoch_;
        for (size_t head = 0; head < queue_.size(); ++head) {
            int32_t at = queue_[head];
            bool ends = !pass_all_ && at != parent && has_ranks_[at] && graph_.src[came_by_[at]] != parent;
            for (int32_t link : leaving_.links(at)) {
                int32_t node = graph_.dst[link];
                if (free_[link] == 0 || seen_[node] == epoch_) continue;
                if (node < input_.ranks) {
                    if (tree.member[node]) continue;
                    came_by_[node] = link;
                    return node;
                }
                if (ends) continue;
                seen_[node] = epoch_;
                came_by_[node] = link;
                queue_.push_back(node);
            }
        }
        return -1;
    }

    // Uses up the links that find_child came along.
    void take_path(int32_t parent, int32_t child) {
        path_.clear();
        for (int32_t node = child; node != parent; node = graph_.src[came_by_[node]]) {
            --free_[came_by_[node]];
            path_.push_back(came_by_[node]);
        }
        std::reverse(path_.begin(), path_.end());
        if (--sends_[parent] == 0) --senders_;
    }

    // Forget members all of whose neighbours are members: on grids that is almost all of them.
    void prune(Tree& tree) const {
        std::erase_if(tree.frontier, [&](int32_t rank) {
            return std::ranges::all_of(leaving_.links(rank), [&](int32_t link) {
                int32_t node = graph_.dst[link];
                return node < input_.ranks && tree.member[node];
            });
        });
    }

    const Graph& graph_;
    const GrowthInput& input_;
    std::span<const int32_t> priority_;
    bool paper_order_, pass_all_ = false;
    Adjacency leaving_;
    std::vector<int32_t> free_;
    std::vector<int64_t> sends_;  // that a rank has left in this step
    int64_t senders_ = 0;         // ranks that have any
    std::vector<Tree> trees_;
    std::vector<int32_t> came_by_, seen_, queue_, path_;
    std::vector<uint8_t> has_ranks_;
    int32_t epoch_ = 0;
    TreeEdges edges_;
};

}  // namespace

TreeEdges grow_by_turns(const Graph& graph, const GrowthInput& input, std::span<const int32_t> priority,
                        bool paper_order) {
    return Grower(graph, input, priority, paper_order).grow();
}

}  // namespace weft
