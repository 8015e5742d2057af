#include "multitree.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

namespace weft {

namespace {

class Grower {
public:
    Grower(const Graph& graph, const MultiTreeOptions& options)
        : graph_(graph),
          options_(options),
          leaving_(graph.nodes, graph.src),
          free_(options.capacity.begin(), options.capacity.end()),
          trees_(options.trees),
          came_by_(graph.nodes, -1),
          seen_(graph.nodes, 0),
          has_ranks_(graph.nodes, 0),
          pass_all_(options.pass_all) {
        for (size_t link = 0; link < graph.src.size(); ++link) {
            if (graph.dst[link] < options.ranks) has_ranks_[graph.src[link]] = 1;
        }
        for (int32_t tree = 0; tree < options.trees; ++tree) {
            trees_[tree].member.assign(options.ranks, 0);
            join(tree, tree / (options.trees / options.ranks));
        }
    }

    Forest grow() {
        std::vector<int32_t> order(trees_.size());
        std::iota(order.begin(), order.end(), 0);
        auto all = static_cast<int64_t>(trees_.size()) * (options_.ranks - 1);
        forest_.step.reserve(all);
        for (int32_t step = 0; static_cast<int64_t>(forest_.step.size()) < all; ++step) {
            size_t before = forest_.step.size();
            grow_step(step, order);
            if (forest_.step.size() > before) continue;
            if (pass_all_) throw std::runtime_error("no tree can grow");
            pass_all_ = true;
        }
        return std::move(forest_);
    }

private:
    struct Tree {
        std::vector<uint8_t> member;
        std::vector<int32_t> frontier;  // members that may still find children, in the order they joined
        size_t joined = 1;
        // Within one step: the first `parents` of the frontier may be parents, those before `next` have failed.
        // Links only get scarcer during a step, so whoever failed once fails until the next step.
        size_t parents = 0, next = 0;
    };

    void join(int32_t tree, int32_t rank) {
        trees_[tree].member[rank] = 1;
        trees_[tree].frontier.push_back(rank);
    }

    void grow_step(int32_t step, std::vector<int32_t>& order) {
        std::copy(options_.capacity.begin(), options_.capacity.end(), free_.begin());
        for (Tree& tree : trees_) {
            tree.parents = tree.frontier.size();
            tree.next = 0;
        }
        for (bool going = true; going;) {
            bool any = false, last = false;
            for (int32_t tree : order) {
                if (complete(tree)) continue;
                last = add_edge(tree, step);
                any = any || last;
            }
            if (options_.paper_order) sort(order);
            // The authors' loop looks at the last tree of a round only, and so ends some steps early.
            going = options_.paper_order ? last : any;
        }
        for (Tree& tree : trees_) prune(tree);
    }

    bool complete(int32_t tree) const { return trees_[tree].joined == static_cast<size_t>(options_.ranks); }

    void sort(std::vector<int32_t>& order) const {
        std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            auto pa = options_.priority[a], pb = options_.priority[b];
            return pa != pb ? pa > pb : a > b;
        });
    }

    bool add_edge(int32_t id, int32_t step) {
        Tree& tree = trees_[id];
        for (; tree.next < tree.parents; ++tree.next) {
            int32_t parent = tree.frontier[tree.next];
            int32_t child = find_child(tree, parent);
            if (child < 0) continue;
            forest_.route.push_back(take_path(parent, child));
            forest_.step.push_back(step);
            forest_.tree.push_back(id);
            forest_.parent.push_back(parent);
            forest_.child.push_back(child);
            join(id, child);
            ++tree.joined;
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
                if (node < options_.ranks) {
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

    // Uses up the links that find_child came along; equal paths share one row of the route table.
    int32_t take_path(int32_t parent, int32_t child) {
        path_.clear();
        for (int32_t node = child; node != parent; node = graph_.src[came_by_[node]]) {
            --free_[came_by_[node]];
            path_.push_back(came_by_[node]);
        }
        std::reverse(path_.begin(), path_.end());
        auto [known, fresh] = route_of_.try_emplace(path_, static_cast<int32_t>(route_of_.size()));
        if (fresh) {
            forest_.routes.links.insert(forest_.routes.links.end(), path_.begin(), path_.end());
            forest_.routes.offsets.push_back(static_cast<int64_t>(forest_.routes.links.size()));
        }
        return known->second;
    }

    // Forget members all of whose neighbours are members: on grids that is almost everybody.
    void prune(Tree& tree) const {
        std::erase_if(tree.frontier, [&](int32_t rank) {
            return std::ranges::all_of(leaving_.links(rank), [&](int32_t link) {
                int32_t node = graph_.dst[link];
                return node < options_.ranks && tree.member[node];
            });
        });
    }

    const Graph& graph_;
    const MultiTreeOptions& options_;
    Adjacency leaving_;
    std::vector<int32_t> free_;
    std::vector<Tree> trees_;
    std::vector<int32_t> came_by_, seen_, queue_;
    std::vector<uint8_t> has_ranks_;
    bool pass_all_;
    int32_t epoch_ = 0;
    std::vector<int32_t> path_;
    std::map<std::vector<int32_t>, int32_t> route_of_;
    Forest forest_;
};

}  // namespace

Forest grow_multitree(const Graph& graph, const MultiTreeOptions& options) { return Grower(graph, options).grow(); }

}  // namespace weft
