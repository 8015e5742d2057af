// A pass takes all transfers in the order of their present start times and puts each, one after the other, into
// the earliest slot in which its data is there and its links are free. The next pass does the same backwards in
// time: what was a reduction towards the root is then a broadcast away from it, over links turned round. Passes
// alternate, each squeezing out the gaps that the one before left (in project scheduling this is known as double
// justification). A transfer that spreads a chunk may change its parent for one that serves it earlier: forward
// passes grow the broadcast trees anew in the free slots, backward passes the reduction trees.
//
// Python half: src/weft/algorithms/forest/timetable.py.
#include "synthesis/timetable.hpp"

#include <algorithm>
#include <numeric>

namespace weft {

namespace {

// The ticks at which a link may start its next chunk.
class FreeTicks {
public:
    void reset() { next_.clear(); }
    int32_t from(int32_t tick) {
        if (tick >= static_cast<int32_t>(next_.size())) extend(tick);
        int32_t found = tick;
        while (next_[found] != found) {
            found = next_[found];
            if (found >= static_cast<int32_t>(next_.size())) extend(found);
        }
        while (next_[tick] != found) tick = std::exchange(next_[tick], found);
        return found;
    }
    // A chunk that starts at `tick` excludes all starts less than its duration away.
    void take(int32_t tick, int32_t duration) {
        int32_t at = from(std::max(0, tick - duration + 1));
        for (; at < tick + duration; at = from(at + 1)) next_[at] = at + 1;
    }

private:
    void extend(int32_t tick) {
        auto old = static_cast<int32_t>(next_.size());
        next_.resize(tick + tick / 2 + 64);
        std::iota(next_.begin() + old, next_.end(), old);
    }
    std::vector<int32_t> next_;
};

struct Stop {
    int32_t link, offset;  // ticks after the start at which the chunk is on this link
};

// A route as a pass sees it, in its direction of time.
struct TimedRoute {
    int32_t src, dst;
    int32_t ticks;        // until all has arrived
    int32_t cost;         // ticks of all links together
    int64_t first, last;  // range of stops
};

// The network in one direction of time.
struct View {
    std::vector<TimedRoute> timed_routes;  // per route
    std::vector<Stop> stops;
    std::vector<std::vector<int32_t>> into;  // per rank: routes that end there
};

// Where each transfer is: `gather` brings partial sums to the root, `spread` results from it. Index as in Trees.
struct Plan {
    std::vector<int32_t> gather, spread;              // routes
    std::vector<int32_t> gather_start, spread_start;  // ticks
    int32_t span = 0;
};

class Scheduler {
public:
    Scheduler(const RankNetwork& net, const Trees& trees, const SlotOptions& options)
        : net_(net), options_(options), root_(trees.root), random_(options.seed), free_(net.links()) {
        add_views(trees);
        plan_.gather = trees.up;
        plan_.spread = trees.down;
        size_t places = trees.up.size();
        summed_.resize(places);
        have_.resize(places);
    }

    Plan run() {
        guess();
        Plan best;
        bool forward = true;
        int32_t stale = 0;
        for (int32_t pass = 0; pass < options_.passes && stale < options_.patience; ++pass, forward = !forward) {
            justify(forward ? ahead_ : back_);
            ++stale;
            if (pass == 0 || plan_.span < best.span) {
                best = plan_;
                stale = 0;
                if (!forward) turn(best, back_);
                if (best.span <= options_.good_enough) break;
            }
            turn(plan_, forward ? ahead_ : back_);
        }
        return best;
    }

    // All routes by which trees may grow, those of the given trees first.
    Routes routes;

private:
    void add_views(const Trees& trees) {
        routes = trees.routes;
        if (net_.graph.nodes == net_.ranks) {
            // On direct networks every link may serve every tree; elsewhere there are too many paths for that.
            std::vector<uint8_t> known(net_.links(), 0);
            for (int32_t link : routes.links) known[link] = 1;
            for (int32_t link = 0; link < net_.links(); ++link) {
                if (known[link]) continue;
                routes.links.push_back(link);
                routes.offsets.push_back(static_cast<int64_t>(routes.links.size()));
            }
        }
        ahead_.into.resize(net_.ranks);
        back_.into.resize(net_.ranks);
        for (size_t route = 0; route + 1 < routes.offsets.size(); ++route) add_route(static_cast<int32_t>(route));
    }

    void add_route(int32_t route) {
        int64_t first = routes.offsets[route], last = routes.offsets[route + 1];
        int32_t src = net_.graph.src[routes.links[first]], dst = net_.graph.dst[routes.links[last - 1]];
        int32_t at = 0;
        for (int64_t hop = first; hop < last; ++hop) {
            int32_t link = routes.links[hop];
            ahead_.stops.push_back({link, at});
            int32_t stay = options_.duration[link];
            int32_t after = hop + 1 < last ? options_.duration[routes.links[hop + 1]] : 0;
            at += options_.latency[link] + std::max(0, stay - after);
        }
        for (int64_t hop = last - 1; hop >= first; --hop) {
            auto [link, offset] = ahead_.stops[hop];
            back_.stops.push_back({link, at - offset - options_.duration[link]});
        }
        int32_t cost = 0;
        for (int64_t hop = first; hop < last; ++hop) cost += options_.duration[routes.links[hop]];
        ahead_.timed_routes.push_back({src, dst, at, cost, first, last});
        back_.timed_routes.push_back({dst, src, at, cost, first, last});
        ahead_.into[dst].push_back(route);
        back_.into[src].push_back(route);
    }

    // First start times, only good for an order: trees one after the other, as dense as their load allows.
    void guess() {
        load_.assign(net_.links(), 0);
        for (const std::vector<int32_t>* half : {&plan_.gather, &plan_.spread}) {
            for (int32_t route : *half) {
                if (route >= 0) add_load(ahead_, ahead_.timed_routes[route], 1);
            }
        }
        int64_t total = heaviest_ = *std::max_element(load_.begin(), load_.end());
        plan_.gather_start.assign(plan_.gather.size(), -1);
        plan_.spread_start.assign(plan_.spread.size(), -1);
        auto trees = static_cast<int64_t>(root_.size());
        for (int64_t tree = 0; tree < trees; ++tree) guess(tree, static_cast<int32_t>(total * tree / trees));
    }

    void add_load(const View& view, const TimedRoute& timed_route, int32_t times) {
        for (int64_t hop = timed_route.first; hop < timed_route.last; ++hop) {
            int32_t link = view.stops[hop].link;
            load_[link] += times * options_.duration[link];
        }
    }

    void guess(int64_t tree, int32_t begin) {
        int64_t base = tree * net_.ranks;
        std::vector<int32_t> down = depths(&plan_.spread[base], ahead_, true, root_[tree]);
        std::vector<int32_t> up = depths(&plan_.gather[base], ahead_, false, root_[tree]);
        int32_t height = *std::max_element(up.begin(), up.end());
        for (int32_t rank = 0; rank < net_.ranks; ++rank) {
            if (rank == root_[tree]) continue;
            if (plan_.gather[base + rank] >= 0) plan_.gather_start[base + rank] = begin + height - up[rank];
            if (plan_.spread[base + rank] < 0) continue;
            int32_t ticks = ahead_.timed_routes[plan_.spread[base + rank]].ticks;
            plan_.spread_start[base + rank] = begin + height + down[rank] - ticks;
        }
    }

    // Ticks between each rank and the root along a half of a tree, if no link were ever busy.
    std::vector<int32_t> depths(const int32_t* half, const View& view, bool down, int32_t root) const {
        std::vector<int32_t> depth(net_.ranks, -1), path;
        depth[root] = 0;
        for (int32_t rank = 0; rank < net_.ranks; ++rank) {
            if (half[rank] < 0) depth[rank] = 0;
            int32_t at = rank;
            for (; depth[at] < 0; at = down ? view.timed_routes[half[at]].src : view.timed_routes[half[at]].dst) {
                path.push_back(at);
            }
            int32_t total = depth[at];
            for (; !path.empty(); path.pop_back()) {
                depth[path.back()] = total += view.timed_routes[half[path.back()]].ticks;
            }
        }
        return depth;
    }

    // Transfers in the order of their starts, equal ones in random order: gathers as their index, spreads after.
    void sort_transfers() {
        auto places = static_cast<int32_t>(summed_.size());
        order_.clear();
        for (int32_t place = 0; place < places; ++place) {
            if (plan_.gather[place] >= 0) order_.push_back(place);
            if (plan_.spread[place] >= 0) order_.push_back(places + place);
        }
        for (size_t left = order_.size(); left > 1; --left) {
            std::swap(order_[left - 1], order_[random_.below(static_cast<uint32_t>(left))]);
        }
        auto start = [&](int32_t id) { return id < places ? plan_.gather_start[id] : plan_.spread_start[id - places]; };
        int32_t latest = 0;
        for (int32_t id : order_) latest = std::max(latest, start(id));
        count_.assign(latest + 2, 0);
        for (int32_t id : order_) ++count_[start(id) + 1];
        std::partial_sum(count_.begin(), count_.end(), count_.begin());
        sorted_.resize(order_.size());
        for (int32_t id : order_) sorted_[count_[start(id)]++] = id;
    }

    void justify(const View& view) {
        sort_transfers();
        for (FreeTicks& link : free_) link.reset();
        std::fill(summed_.begin(), summed_.end(), 0);
        std::fill(have_.begin(), have_.end(), -1);
        plan_.span = 0;
        auto places = static_cast<int32_t>(summed_.size());
        for (int32_t id : sorted_) {
            if (id < places) {
                place_gather(view, id);
            } else {
                place_spread(view, id - places);
            }
        }
    }

    void place_gather(const View& view, int32_t place) {
        const TimedRoute& timed_route = view.timed_routes[plan_.gather[place]];
        int32_t start = earliest(view, timed_route, summed_[place]);
        take(view, timed_route, start);
        plan_.gather_start[place] = start;
        int32_t parent = place - place % net_.ranks + timed_route.dst;
        summed_[parent] = std::max(summed_[parent], start + timed_route.ticks);
    }

    void place_spread(const View& view, int32_t place) {
        int32_t rank = place % net_.ranks, base = place - rank, was = plan_.spread_start[place];
        int32_t best = plan_.spread[place], cost = view.timed_routes[best].cost;
        int32_t start = earliest(view, view.timed_routes[best], ready(view, base, best));
        const std::vector<int32_t>& choices = view.into[rank];
        auto size = static_cast<uint32_t>(choices.size());
        uint32_t tries = std::min<uint32_t>(size, options_.alternatives),
                 choice = size > tries ? random_.below(size) : 0;
        for (; tries > 0; --tries, choice = choice + 1 == size ? 0 : choice + 1) {
            int32_t route = choices[choice];
            const TimedRoute& timed_route = view.timed_routes[route];
            int32_t ready_at = ready(view, base, route);
            int32_t arrival = start + view.timed_routes[best].ticks;
            // Only for something earlier than it was: so no transfer that is placed later is pushed beyond its old place.
            // And never for something dearer: slow links would fill up with what looks early.
            if (ready_at < 0 || timed_route.cost > cost || ready_at + timed_route.ticks > std::min(was, arrival - 1))
                continue;
            int32_t other = earliest(view, timed_route, ready_at);
            if (other + timed_route.ticks > std::min(was, arrival - 1) || !bearable(view, timed_route)) continue;
            best = route, start = other;
        }
        take(view, view.timed_routes[best], start);
        if (best != plan_.spread[place]) {
            add_load(view, view.timed_routes[plan_.spread[place]], -1);
            add_load(view, view.timed_routes[best], 1);
            plan_.spread[place] = best;
        }
        plan_.spread_start[place] = start;
        have_[place] = start + view.timed_routes[best].ticks;
    }

    // Whether a route may take one more chunk without making the busiest link busier than it was at first: an early
    // end for one chunk is not worth a later one for all.
    bool bearable(const View& view, const TimedRoute& timed_route) const {
        for (int64_t hop = timed_route.first; hop < timed_route.last; ++hop) {
            int32_t link = view.stops[hop].link;
            if (load_[link] + options_.duration[link] > heaviest_) return false;
        }
        return true;
    }

    // When the parent at the other end of a route has the result, or -1 while it has not.
    int32_t ready(const View& view, int32_t base, int32_t route) const {
        int32_t parent = view.timed_routes[route].src;
        return parent == root_[base / net_.ranks] ? summed_[base + parent] : have_[base + parent];
    }

    int32_t earliest(const View& view, const TimedRoute& timed_route, int32_t start) {
        for (int64_t hop = timed_route.first; hop < timed_route.last;) {
            const Stop& stop = view.stops[hop];
            int32_t free = free_[stop.link].from(start + stop.offset) - stop.offset;
            // Later on one link means asking all the others again.
            hop = free > start && timed_route.last - timed_route.first > 1 ? timed_route.first : hop + 1;
            start = free;
        }
        return start;
    }

    void take(const View& view, const TimedRoute& timed_route, int32_t start) {
        for (int64_t hop = timed_route.first; hop < timed_route.last; ++hop) {
            const Stop& stop = view.stops[hop];
            free_[stop.link].take(start + stop.offset, options_.duration[stop.link]);
        }
        plan_.span = std::max(plan_.span, start + timed_route.ticks);
    }

    // The same timetable seen from its end.
    static void turn(Plan& plan, const View& view) {
        for (size_t place = 0; place < plan.gather.size(); ++place) {
            int32_t gather = plan.gather[place], spread = plan.spread[place];
            int32_t gather_end = gather < 0 ? -1 : plan.gather_start[place] + view.timed_routes[gather].ticks;
            int32_t spread_end = spread < 0 ? -1 : plan.spread_start[place] + view.timed_routes[spread].ticks;
            plan.gather[place] = spread, plan.gather_start[place] = spread < 0 ? -1 : plan.span - spread_end;
            plan.spread[place] = gather, plan.spread_start[place] = gather < 0 ? -1 : plan.span - gather_end;
        }
    }

    const RankNetwork& net_;
    const SlotOptions& options_;
    const std::vector<int32_t>& root_;
    RandomNumbers random_;
    std::vector<FreeTicks> free_;
    View ahead_, back_;
    Plan plan_;
    std::vector<int64_t> load_;  // per link: ticks that all chunks together hold it
    int64_t heaviest_ = 0;       // the most of these at the beginning
    std::vector<int32_t> summed_, have_;  // per place: when its partial sum is complete, when it has the result
    std::vector<int32_t> order_, sorted_, count_;
};

}  // namespace

Timetable schedule_trees(const RankNetwork& network, Trees trees, const SlotOptions& options) {
    Scheduler scheduler(network, trees, options);
    Plan plan = scheduler.run();
    Timetable table;
    table.trees = {std::move(trees.root), std::move(plan.gather), std::move(plan.spread), std::move(scheduler.routes)};
    table.up_start = std::move(plan.gather_start);
    table.down_start = std::move(plan.spread_start);
    table.span = plan.span;
    return table;
}

}  // namespace weft
