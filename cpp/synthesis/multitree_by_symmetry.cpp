// Python half: src/weft/algorithms/multitree/growth.py.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "synthesis/matching.hpp"
#include "synthesis/multitree_growth.hpp"

namespace weft {

namespace {

// Points of a wrapped grid, by number; the last dimension runs fastest.
class Points {
public:
    Points(std::span<const int64_t> shape, int32_t count) : shape_(shape), at_(count * shape.size()) {
        for (int32_t point = 0; point < count; ++point) {
            int64_t rest = point;
            for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) {
                at_[point * shape.size() + axis] = rest % shape[axis];
            }
        }
    }

    int32_t subtract(int32_t a, int32_t b) const {
        int64_t point = 0;
        for (size_t axis = 0; axis < shape_.size(); ++axis) {
            int64_t apart = at_[a * shape_.size() + axis] - at_[b * shape_.size() + axis];
            point = point * shape_[axis] + (apart < 0 ? apart + shape_[axis] : apart);
        }
        return static_cast<int32_t>(point);
    }

private:
    std::span<const int64_t> shape_;
    std::vector<int64_t> at_;
};

// The trees of rank 0. In one step a move is made once per unit of its capacity, whichever tree makes it: then the
// moved trees of all ranks together use each link just as often.
class Pattern {
public:
    struct Edge {
        int32_t step, tree, parent, move;
    };

    Pattern(const Symmetry& symmetry, const Points& points, int32_t ranks, int32_t trees)
        : symmetry_(symmetry),
          ranks_(ranks),
          trees_(trees),
          depth_(static_cast<size_t>(ranks) * trees, kFar),
          adjacent_(trees),
          from_(symmetry.move.size() * ranks),
          onto_(from_.size()) {
        for (size_t move = 0; move < symmetry.move.size(); ++move) {
            for (int32_t point = 0; point < ranks; ++point) {
                int32_t before = points.subtract(point, symmetry.move[move]);
                from_[move * ranks + point] = before;
                onto_[move * ranks + before] = point;
            }
        }
        for (int32_t tree = 0; tree < trees; ++tree) join(tree, 0, 0);
    }

    std::vector<Edge> grow() {
        std::vector<Edge> edges;
        size_t all = static_cast<size_t>(trees_) * (ranks_ - 1);
        for (int32_t step = 0; edges.size() < all; ++step) {
            find_newcomers();
            size_t first = edges.size();
            match(step, edges);
            // Only now: a rank is no parent in the step in which it joins.
            for (size_t edge = first; edge < edges.size(); ++edge) {
                auto [_, tree, parent, move] = edges[edge];
                join(tree, onto(move, parent), depth(tree, parent) + 1);
            }
        }
        return edges;
    }

    int32_t onto(int32_t move, int32_t point) const { return onto_[static_cast<size_t>(move) * ranks_ + point]; }

private:
    static constexpr int32_t kFar = -1, kAdjacent = -2;  // else it is in the tree
    struct JoinCandidate {
        int32_t depth, point, tree;
        auto operator<=>(const JoinCandidate&) const = default;
    };

    int32_t& depth(int32_t tree, int32_t point) { return depth_[static_cast<size_t>(tree) * ranks_ + point]; }
    int32_t parent_depth(int32_t move, int32_t tree, int32_t point) {
        return depth(tree, from_[static_cast<size_t>(move) * ranks_ + point]);
    }

    void join(int32_t tree, int32_t point, int32_t deep) {
        depth(tree, point) = deep;
        for (size_t move = 0; move < symmetry_.move.size(); ++move) {
            int32_t next = onto(static_cast<int32_t>(move), point);
            if (depth(tree, next) != kFar) continue;
            depth(tree, next) = kAdjacent;
            adjacent_[tree].push_back(next);
        }
    }

    // Shallow ones first: then the trees are as flat as the network allows.
    void find_newcomers() {
        candidates_.clear();
        for (int32_t tree = 0; tree < trees_; ++tree) {
            std::erase_if(adjacent_[tree], [&](int32_t point) { return depth(tree, point) >= 0; });
            for (int32_t point : adjacent_[tree]) {
                int32_t least = ranks_;
                for (size_t move = 0; move < symmetry_.move.size(); ++move) {
                    int32_t deep = parent_depth(static_cast<int32_t>(move), tree, point);
                    if (deep >= 0) least = std::min(least, deep);
                }
                candidates_.push_back({least, point, tree});
            }
        }
        std::sort(candidates_.begin(), candidates_.end());
    }

    void match(int32_t step, std::vector<Edge>& edges) {
        matching_.clear(symmetry_.capacity);
        taken_.clear();
        for (size_t i = 0; i < candidates_.size() && !matching_.full(); ++i) {
            auto [_, point, tree] = candidates_[i];
            moves_.clear();
            for (int32_t move = 0; move < static_cast<int32_t>(symmetry_.move.size()); ++move) {
                if (parent_depth(move, tree, point) >= 0) moves_.push_back(move);
            }
            std::ranges::stable_sort(moves_, {}, [&](int32_t move) { return parent_depth(move, tree, point); });
            if (matching_.offer(moves_)) taken_.push_back(i);
        }
        for (size_t move = 0; move < symmetry_.move.size(); ++move) {
            for (int32_t who : matching_.holders(move)) {
                auto [_, point, tree] = candidates_[taken_[who]];
                edges.push_back({step, tree, from_[move * ranks_ + point], static_cast<int32_t>(move)});
            }
        }
    }

    const Symmetry& symmetry_;
    int32_t ranks_, trees_;
    std::vector<int32_t> depth_;
    std::vector<std::vector<int32_t>> adjacent_;  // per tree: the ranks next to it
    std::vector<int32_t> from_, onto_;
    std::vector<JoinCandidate> candidates_;
    std::vector<size_t> taken_;
    std::vector<int32_t> moves_;
    PortMatching matching_;
};

}  // namespace

TreeEdges grow_by_symmetry(const Symmetry& symmetry, int32_t ranks, int32_t trees, size_t links) {
    int32_t per_root = trees / ranks;
    Points points(symmetry.shape, ranks);
    Pattern pattern(symmetry, points, ranks, per_root);
    std::vector<Pattern::Edge> tree_edges = pattern.grow();

    TreeEdges result(0, static_cast<int64_t>(tree_edges.size()) * ranks);
    result.routes.links.resize(links);  // every link is a route of its own
    std::iota(result.routes.links.begin(), result.routes.links.end(), 0);
    result.routes.offsets.resize(links + 1);
    std::iota(result.routes.offsets.begin(), result.routes.offsets.end(), 0);
    std::vector<std::tuple<int32_t, int32_t, int32_t>> sends;  // child, link, tree: in the order of a schedule's rows
    for (size_t begin = 0, end = 0; begin < tree_edges.size(); begin = end) {
        int32_t step = tree_edges[begin].step;
        while (end < tree_edges.size() && tree_edges[end].step == step) ++end;
        for (int32_t rank = 0; rank < ranks; ++rank) {
            sends.clear();
            for (size_t edge = begin; edge < end; ++edge) {
                auto [_, tree, parent, move] = tree_edges[edge];
                int32_t link = symmetry.link[static_cast<size_t>(move) * ranks + rank];
                sends.emplace_back(pattern.onto(move, rank), link, points.subtract(rank, parent) * per_root + tree);
            }
            std::sort(sends.begin(), sends.end());
            for (auto [child, link, tree] : sends) result.add(step, tree, rank, child, link);
        }
    }
    return result;
}

}  // namespace weft
