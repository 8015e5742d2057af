// Python half: src/weft/algorithms/multitree/growth.py.
#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "synthesis/matching.hpp"
#include "synthesis/multitree_growth.hpp"

namespace weft {

namespace {

// So many trees are looked at before one is chosen: all of them would cost more and gain nothing.
constexpr size_t kSample = 16;

// A set of trees per row.
class Sets {
public:
    Sets(int32_t rows, int32_t trees) : words_((trees + 63) / 64), bits_(rows * words_), missing_(rows, trees) {}

    std::span<const uint64_t> row(int32_t row) const { return {bits_.data() + row * words_, words_}; }
    bool has(int32_t row, int32_t tree) const { return bits_[row * words_ + tree / 64] >> (tree % 64) & 1; }
    int32_t missing(int32_t row) const { return missing_[row]; }

    void insert(int32_t row, int32_t tree) {
        missing_[row] -= !has(row, tree);
        bits_[row * words_ + tree / 64] |= uint64_t{1} << (tree % 64);
    }

private:
    size_t words_;
    std::vector<uint64_t> bits_;
    std::vector<int32_t> missing_;
};

uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Shows `visit` up to `most` trees of `these` that are not among `those`, from a random one on.
template <typename Visit>
void sample(std::span<const uint64_t> these, std::span<const uint64_t> those, uint64_t random, size_t most,
            Visit visit) {
    size_t words = these.size(), first = random % words;
    uint64_t upper = ~uint64_t{0} << (random >> 58);
    for (size_t i = 0; i <= words && most > 0; ++i) {
        size_t word = (first + i) % words;
        uint64_t left = these[word] & ~those[word];
        if (i == 0) left &= upper;
        if (i == words) left &= ~upper;
        for (; left != 0 && most > 0; left &= left - 1, --most) {
            visit(static_cast<int32_t>(word * 64 + std::countr_zero(left)));
        }
    }
}

class Grower {
public:
    Grower(const Graph& graph, const GrowthInput& input, std::span<const int32_t> group, uint64_t seed)
        : graph_(graph),
          input_(input),
          group_(group),
          seed_(seed),
          entering_(graph.nodes, graph.dst),
          free_(graph.src.size()),
          before_(input.ranks, input.trees),
          now_(before_),
          group_now_(before_),
          size_(input.trees, 1),
          depth_(static_cast<size_t>(input.ranks) * input.trees, 0),
          looked_at_(input.trees, 0),
          came_by_(graph.nodes),
          seen_(graph.nodes, 0),
          edges_(graph.src.size(), input.edges()) {
        for (int32_t tree = 0; tree < input.trees; ++tree) enter(tree, input.root(tree));
    }

    TreeEdges grow() {
        bool switched = graph_.nodes > input_.ranks;
        for (; static_cast<int64_t>(edges_.step.size()) < input_.edges(); ++step_) {
            size_t before = edges_.step.size();
            std::copy(input_.capacity.begin(), input_.capacity.end(), free_.begin());
            before_ = now_;
            salt_ = mix(seed_ ^ mix(step_));
            for (int32_t rank = 0; rank < input_.ranks; ++rank) take_from_neighbours(rank);
            if (switched) {
                take_over_switches(group_now_, group_);
                take_over_switches(now_, {});
            }
            if (edges_.step.size() == before) throw std::runtime_error("no tree can grow");
        }
        return std::move(edges_);
    }

private:
    uint16_t& depth(int32_t tree, int32_t rank) { return depth_[static_cast<size_t>(rank) * input_.trees + tree]; }

    void enter(int32_t tree, int32_t rank) {
        now_.insert(rank, tree);
        group_now_.insert(group_[rank], tree);
    }

    void add(int32_t tree, int32_t parent, int32_t child, std::span<const int32_t> path) {
        edges_.add(step_, tree, parent, child, path);
        for (int32_t link : path) --free_[link];
        depth(tree, child) = static_cast<uint16_t>(depth(tree, parent) + 1);
        ++size_[tree];
        enter(tree, child);
    }

    // Links straight from other ranks serve no other rank, so what is best for this rank is best.
    void take_from_neighbours(int32_t rank) {
        ports_.clear();
        for (int32_t link : entering_.links(rank)) {
            if (graph_.src[link] < input_.ranks) ports_.push_back(link);
        }
        if (ports_.empty() || now_.missing(rank) == 0) return;
        find_trees(rank);
        matching_.clear(room_);
        taken_.clear();
        for (const Candidate& candidate : candidates_) {
            if (matching_.full()) break;
            find_ports(candidate.tree);
            if (matching_.offer(wanted_)) taken_.push_back(candidate.tree);
        }
        for (size_t port = 0; port < ports_.size(); ++port) {
            for (int32_t who : matching_.holders(port)) {
                add(taken_[who], graph_.src[ports_[port]], rank, {&ports_[port], 1});
            }
        }
    }

    // Trees this rank could join, the smallest first: enough of them that no port stays empty for want of choice.
    void find_trees(int32_t rank) {
        room_.clear();
        for (int32_t link : ports_) room_.push_back(std::min(input_.capacity[link], now_.missing(rank)));
        size_t most = std::max<size_t>(kSample, std::accumulate(room_.begin(), room_.end(), size_t{0}));
        candidates_.clear();
        ++epoch_;
        for (int32_t link : ports_) {
            uint64_t random = mix(salt_ ^ static_cast<uint64_t>(link));
            sample(before_.row(graph_.src[link]), now_.row(rank), random, most, [&](int32_t tree) {
                if (looked_at_[tree] == epoch_) return;
                looked_at_[tree] = epoch_;
                candidates_.push_back({size_[tree], mix(random ^ static_cast<uint64_t>(tree)), tree});
            });
        }
        std::sort(candidates_.begin(), candidates_.end());
    }

    // Those of the ports that lead to a member, the one nearest to the root first.
    void find_ports(int32_t tree) {
        wanted_.clear();
        for (size_t port = 0; port < ports_.size(); ++port) {
            if (before_.has(graph_.src[ports_[port]], tree)) wanted_.push_back(static_cast<int32_t>(port));
        }
        std::ranges::stable_sort(wanted_, {}, [&](int32_t port) { return depth(tree, graph_.src[ports_[port]]); });
    }

    // Ranks take a tree each, in turns, those that lack most first; none that is in `known` already, at the row of
    // the rank's group or at its own.
    void take_over_switches(const Sets& known, std::span<const int32_t> group) {
        auto row = [&](int32_t rank) { return group.empty() ? rank : group[rank]; };
        waiting_.resize(input_.ranks);
        std::iota(waiting_.begin(), waiting_.end(), 0);
        std::ranges::sort(waiting_, {}, [&](int32_t rank) {
            return std::tuple(-now_.missing(rank), mix(salt_ ^ static_cast<uint64_t>(rank)));
        });
        // Links only get scarcer during a step: a rank that finds nothing is done with it.
        while (!waiting_.empty()) {
            std::erase_if(waiting_, [&](int32_t rank) {
                return known.missing(row(rank)) == 0 || !take(rank, known.row(row(rank)));
            });
        }
    }

    // From one of the nearest ranks that have something to give; of that, what is nearest to its root.
    bool take(int32_t rank, std::span<const uint64_t> known) {
        ++epoch_;
        queue_.assign(1, rank);
        seen_[rank] = epoch_;
        Offer best;
        size_t givers = 0;
        for (size_t head = 0, level = 1; head < queue_.size() && givers < kSample; ++head) {
            if (head == level && givers > 0) break;
            if (head == level) level = queue_.size();
            auto links = entering_.links(queue_[head]);
            if (links.empty()) continue;  // a switch that only gives
            // Always beginning with the same one would wear it out.
            auto middle = links.begin() + static_cast<int64_t>(mix(salt_ ^ static_cast<uint64_t>(rank)) % links.size());
            for (auto part : {std::span(middle, links.end()), std::span(links.begin(), middle)}) {
                for (int32_t link : part) {
                    int32_t node = graph_.src[link];
                    if (free_[link] == 0 || seen_[node] == epoch_) continue;
                    seen_[node] = epoch_;
                    came_by_[node] = link;
                    if (node >= input_.ranks) {
                        queue_.push_back(node);
                    } else if (givers < kSample) {
                        givers += ask(node, known, best);
                    }
                }
            }
        }
        if (givers == 0) return false;
        path_.clear();
        for (int32_t node = best.giver; node != rank; node = graph_.dst[came_by_[node]]) {
            path_.push_back(came_by_[node]);
        }
        add(best.tree, best.giver, rank, path_);
        return true;
    }

    struct Offer {
        int32_t depth, size, giver = -1, tree = -1;
    };

    // Whether a rank has anything that is not in `known`; the best of it, if better, becomes the offer.
    bool ask(int32_t giver, std::span<const uint64_t> known, Offer& best) {
        bool any = false;
        sample(before_.row(giver), known, mix(salt_ ^ static_cast<uint64_t>(giver)), kSample, [&](int32_t tree) {
            any = true;
            int32_t deep = depth(tree, giver);
            if (best.giver >= 0 && std::tie(best.depth, best.size) <= std::tie(deep, size_[tree])) return;
            best = {deep, size_[tree], giver, tree};
        });
        return any;
    }

    struct Candidate {
        int32_t size;
        uint64_t tie;
        int32_t tree;
        auto operator<=>(const Candidate&) const = default;
    };

    const Graph& graph_;
    const GrowthInput& input_;
    std::span<const int32_t> group_;
    uint64_t seed_, salt_ = 0;
    Adjacency entering_;
    std::vector<int32_t> free_;
    Sets before_, now_, group_now_;  // trees that a rank, or another rank of its group, is in
    std::vector<int32_t> size_;      // of each tree
    std::vector<uint16_t> depth_;
    std::vector<int32_t> looked_at_, came_by_, seen_, queue_, path_, waiting_, ports_, room_, wanted_, taken_;
    std::vector<Candidate> candidates_;
    PortMatching matching_;
    int32_t step_ = 0, epoch_ = 0;
    TreeEdges edges_;
};

}  // namespace

TreeEdges grow_by_need(const Graph& graph, const GrowthInput& input, std::span<const int32_t> group, uint64_t seed) {
    return Grower(graph, input, group, seed).grow();
}

}  // namespace weft
