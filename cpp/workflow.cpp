#include "workflow.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "admission.hpp"
#include "clockwork.hpp"
#include "patience.hpp"
#include "radix_queue.hpp"

namespace weft {

namespace {

struct Happening {
    enum class Kind : uint32_t { hop, arrive, left, worked, free };

    int64_t time;
    int32_t task;
    int32_t what;  // a segment; a rank for `worked`; a resource for `free`
    Kind kind : 3;
    uint32_t hop : 29;

    Happening(int64_t when, int32_t of, int32_t thing, Kind event, uint32_t at = 0)
        : time(when), task(of), what(thing), kind(event), hop(at) {}
};

using Calendar = RadixQueue<Happening>;

int64_t scaled(int64_t bytes, const Hop& hop) {
    if (hop.numerator == hop.denominator) return bytes;
    auto wide = static_cast<unsigned __int128>(bytes) * static_cast<uint64_t>(hop.numerator);
    wide = (wide + static_cast<uint64_t>(hop.denominator) - 1) / static_cast<uint64_t>(hop.denominator);
    if (wide > std::numeric_limits<int64_t>::max()) throw std::overflow_error("simulated bytes");
    return static_cast<int64_t>(wide);
}

// One server per resource; each takes the waiting piece of work of the smallest (priority, task, segment). A rank's
// own work comes before the segments of the same task.
class Servers {
public:
    Servers(const WorkflowInput& input, Calendar& calendar, WorkflowOutcome& outcome, bool record)
        : input_(input),
          calendar_(calendar),
          outcome_(outcome),
          record_(record),
          servers_(input.rate.size()) {}

    void offer_work(int32_t resource, int32_t task, int32_t rank, int64_t bytes) {
        offer(resource, {input_.tasks[task].priority, 0, bytes, task, rank, kWork});
    }

    void offer_segment(int32_t task, int32_t segment, uint32_t hop) {
        const Pattern& pattern = *input_.patterns[input_.tasks[task].pattern];
        const Hop& here = pattern.path(segment)[hop];
        const Segment& found = pattern.program.segments[segment];
        int64_t bytes = scaled(found.bytes, here);
        offer(here.resource, {input_.tasks[task].priority, found.key + 1, bytes, task, segment, hop});
    }

    void is_free(int32_t resource) {
        servers_[resource].wakes = false;
        touch(resource);
    }

    void start(int64_t now) {
        for (int32_t resource : touched_) {
            Server& server = servers_[resource];
            server.touched = false;
            if (server.waiting.empty()) continue;
            if (server.free_at <= now) serve(resource, now);
            if (!server.waiting.empty() && !server.wakes) {
                server.wakes = true;
                calendar_.push({server.free_at, 0, resource, Happening::Kind::free});
            }
        }
        touched_.clear();
    }

private:
    static constexpr uint32_t kWork = (1u << 29) - 1;  // in place of a hop: work of a rank

    struct Waiting {
        int64_t priority;
        uint64_t key;
        int64_t bytes;
        int32_t task;
        int32_t what;
        uint32_t hop;
    };
    struct Server {
        int64_t free_at = 0;
        int64_t bytes = -1, duration = 0;  // of what was served last: most is alike
        bool touched = false, wakes = false;
        std::vector<Waiting> waiting;
    };

    static bool later(const Waiting& a, const Waiting& b) {
        if (a.priority != b.priority) return a.priority > b.priority;
        return a.task != b.task ? a.task > b.task : a.key > b.key;
    }

    void offer(int32_t resource, const Waiting& next) {
        auto& waiting = servers_[resource].waiting;
        waiting.push_back(next);
        std::push_heap(waiting.begin(), waiting.end(), later);
        touch(resource);
    }

    void touch(int32_t resource) {
        if (servers_[resource].touched) return;
        servers_[resource].touched = true;
        touched_.push_back(resource);
    }

    int64_t duration(int32_t resource, int64_t bytes) {
        Server& server = servers_[resource];
        if (server.bytes != bytes) {
            server.bytes = bytes;
            server.duration = duration_ps(bytes, input_.rate[resource]);
        }
        return server.duration;
    }

    void serve(int32_t resource, int64_t now) {
        Server& server = servers_[resource];
        std::pop_heap(server.waiting.begin(), server.waiting.end(), later);
        Waiting next = server.waiting.back();
        server.waiting.pop_back();
        int64_t held = duration(resource, next.bytes);
        server.free_at = now + held;
        outcome_.busy_ps[resource] += held;
        bool works = next.hop == kWork;
        if (record_) record(next.task, works ? kNone : next.what, resource, now, now + held);
        int64_t head = now + input_.latency_ps[resource];
        if (works) {
            calendar_.push({head + held, next.task, next.what, Happening::Kind::worked});
            return;
        }
        const Pattern& pattern = *input_.patterns[input_.tasks[next.task].pattern];
        auto path = pattern.path(next.what);
        if (next.hop == 0) calendar_.push({now + held, next.task, next.what, Happening::Kind::left});
        if (next.hop + 1 == path.size()) {
            calendar_.push({head + held, next.task, next.what, Happening::Kind::arrive});
        } else {
            // A slow feeder must not starve a fast server: that one starts late enough never to run dry.
            const Hop& then = path[next.hop + 1];
            int64_t onward = duration(then.resource, scaled(pattern.program.segments[next.what].bytes, then));
            calendar_.push({head + std::max<int64_t>(0, held - onward), next.task, next.what, Happening::Kind::hop,
                            next.hop + 1});
        }
    }

    void record(int32_t task, int32_t segment, int32_t resource, int64_t start, int64_t end) {
        outcome_.span_task.push_back(task);
        outcome_.span_segment.push_back(segment);
        outcome_.span_resource.push_back(resource);
        outcome_.span_start_ps.push_back(start);
        outcome_.span_end_ps.push_back(end);
    }

    const WorkflowInput& input_;
    Calendar& calendar_;
    WorkflowOutcome& outcome_;
    bool record_;
    std::vector<Server> servers_;
    std::vector<int32_t> touched_;
};

// What every rank does next, and what each segment still waits for.
class Flow {
public:
    Flow(const WorkflowInput& input, bool record, WorkflowOutcome& outcome)
        : input_(input),
          outcome_(outcome),
          servers_(input, calendar_, outcome, record),
          admission_(input),
          parts_(input.tasks.size() * input.ranks),
          live_(input.tasks.size()) {
        outcome.busy_ps.assign(input.rate.size(), 0);
        outcome.began_ps.assign(parts_.size(), -1);
        outcome.ended_ps.assign(parts_.size(), -1);
        for (size_t task = 0; task < input.tasks.size(); ++task) {
            for (int32_t rank = 0; rank < input.ranks; ++rank) {
                part(static_cast<int32_t>(task), rank).needs = input.tasks[task].needs;
            }
        }
    }

    void run(int64_t max_time_ps) {
        for (size_t task = 0; task < input_.tasks.size(); ++task) {
            if (input_.tasks[task].needs > 0) continue;
            for (int32_t rank = 0; rank < input_.ranks; ++rank) enter(static_cast<int32_t>(task), rank);
        }
        settle();
        servers_.start(0);
        Patience patience;
        std::vector<Happening> batch;
        while (!calendar_.empty()) {
            calendar_.pop(batch);
            now_ = batch.front().time;
            if (now_ > max_time_ps) throw std::overflow_error("simulated time");
            // Everything that happens at this instant, and all that it makes happen, comes before any server starts.
            do {
                outcome_.events += static_cast<int64_t>(batch.size());
                patience.spend(32 * batch.size());
                for (const Happening& event : batch) handle(event);
                settle();
            } while (calendar_.pop_again(batch));
            servers_.start(now_);
        }
        outcome_.time_ps = now_;
        find_stuck();
    }

private:
    struct Part {  // a task at a rank
        int32_t needs = 0;
        int32_t stage = kNone;
        int32_t held = kNone;  // the pool of the last token that one of its stages took
        int32_t duties = 0;  // segments of this stage that the rank has still to send or receive
    };
    struct Live {  // counters of a pattern while a task carries it out
        std::vector<int32_t> start_needs, apply_needs;
        int32_t ranks = 0;  // that have ended
    };
    struct At {
        int32_t task, what;
    };

    Part& part(int32_t task, int32_t rank) { return parts_[static_cast<size_t>(task) * input_.ranks + rank]; }
    size_t place(int32_t task, int32_t rank) const { return static_cast<size_t>(task) * input_.ranks + rank; }
    const Stage& stage_of(int32_t task, int32_t number) const {
        return input_.stages[input_.tasks[task].first_stage + number];
    }
    const Pattern& pattern_of(int32_t task) const { return *input_.patterns[input_.tasks[task].pattern]; }

    void handle(const Happening& event) {
        switch (event.kind) {
            case Happening::Kind::hop: servers_.offer_segment(event.task, event.what, event.hop); break;
            case Happening::Kind::arrive: need_apply(event.task, event.what); break;
            case Happening::Kind::left: left(event.task, event.what); break;
            case Happening::Kind::worked: done_.push_back({event.task, event.what}); break;
            case Happening::Kind::free: servers_.is_free(event.what); break;
        }
    }

    // All that follows at once from what has happened.
    void settle() {
        for (;;) {
            while (!ready_.empty() || !applied_.empty() || !done_.empty()) {
                each(ready_, [&](At at) { start(at.task, at.what); });
                each(applied_, [&](At at) { apply(at.task, at.what); });
                each(done_, [&](At at) { next_stage(at.task, at.what); });
            }
            const auto& grants = admission_.grant();
            if (grants.empty()) return;
            for (const auto& [task, rank, pool] : grants) granted(task, rank, pool);
        }
    }

    // Does something with each of a list, which may grow meanwhile.
    template <typename Action>
    void each(std::vector<At>& list, Action action) {
        moving_.swap(list);
        for (At at : moving_) action(at);
        moving_.clear();
    }

    void enter(int32_t task, int32_t rank) {
        int32_t pool = input_.tasks[task].pool;
        if (pool != kNone) {
            admission_.ask(task, rank, pool, now_);
        } else {
            done_.push_back({task, rank});  // with nothing, which comes before the first stage
        }
    }

    void next_stage(int32_t task, int32_t rank) {
        const WorkflowTask& found = input_.tasks[task];
        int32_t next = part(task, rank).stage + 1;
        if (found.first_stage + next == found.last_stage) return end(task, rank);
        int32_t pool = stage_of(task, next).pool;
        if (pool != kNone) {
            admission_.ask(task, rank, pool, now_);
        } else {
            begin(task, rank);
        }
    }

    void granted(int32_t task, int32_t rank, int32_t pool) {
        if (part(task, rank).stage == kNone && pool == input_.tasks[task].pool) {
            next_stage(task, rank);
        } else {
            begin(task, rank);
        }
    }

    // Holds a stage's token in place of the one before; none at the end.
    void hold(int32_t task, int32_t rank, int32_t pool) {
        int32_t& held = part(task, rank).held;
        if (held != kNone) admission_.release(held, rank);
        held = pool;
    }

    void begin(int32_t task, int32_t rank) {
        Part& mine = part(task, rank);
        int64_t& began = outcome_.began_ps[place(task, rank)];
        if (began < 0) began = now_;
        const Stage& stage = stage_of(task, ++mine.stage);
        if (stage.pool != kNone) hold(task, rank, stage.pool);
        if (stage.pattern != kNone) return open(task, rank, stage);
        int64_t amount = input_.amounts[stage.amounts + rank];
        if (amount == 0) {
            done_.push_back({task, rank});
        } else if (stage.first_resource == kNone) {
            calendar_.push({now_ + amount, task, rank, Happening::Kind::worked});
        } else {
            servers_.offer_work(stage.first_resource + rank, task, rank, amount);
        }
    }

    void open(int32_t task, int32_t rank, const Stage& stage) {
        const Pattern& pattern = pattern_of(task);
        Live& live = live_[task];
        if (live.start_needs.empty()) {
            for (const Segment& segment : pattern.program.segments) {
                live.start_needs.push_back(segment.start_needs + 1);  // until its sender is in this part
                live.apply_needs.push_back(segment.apply_needs + 2);  // until it is there, and its receiver is, too
            }
        }
        auto sends = pattern.sent(stage.part, input_.ranks, rank);
        auto receives = pattern.received(stage.part, input_.ranks, rank);
        part(task, rank).duties = static_cast<int32_t>(sends.size() + receives.size());
        if (sends.empty() && receives.empty()) done_.push_back({task, rank});
        for (int32_t segment : sends) need_start(task, segment);
        for (int32_t segment : receives) need_apply(task, segment);
    }

    void start(int32_t task, int32_t segment) {
        if (!pattern_of(task).path(segment).empty()) return servers_.offer_segment(task, segment, 0);
        left(task, segment);  // from slot to slot of one rank
        need_apply(task, segment);
    }

    void need_start(int32_t task, int32_t segment) {
        if (--live_[task].start_needs[segment] == 0) ready_.push_back({task, segment});
    }

    void need_apply(int32_t task, int32_t segment) {
        if (--live_[task].apply_needs[segment] == 0) applied_.push_back({task, segment});
    }

    void apply(int32_t task, int32_t segment) {
        const Pattern& pattern = pattern_of(task);
        release(task, pattern.program.segments[segment].when_applied);
        fulfil(task, pattern.dst[segment]);
    }

    void left(int32_t task, int32_t segment) {
        const Pattern& pattern = pattern_of(task);
        release(task, pattern.program.segments[segment].when_left);
        fulfil(task, pattern.src[segment]);
    }

    void release(int32_t task, int32_t edge) {
        const auto& edges = pattern_of(task).program.edges;
        for (; edge != kNone; edge = edges[edge].next) {
            auto segment = static_cast<int32_t>(edges[edge].target >> 1);
            if (edges[edge].target & 1) {
                need_apply(task, segment);
            } else {
                need_start(task, segment);
            }
        }
    }

    void fulfil(int32_t task, int32_t rank) {
        if (--part(task, rank).duties == 0) done_.push_back({task, rank});
    }

    void end(int32_t task, int32_t rank) {
        hold(task, rank, kNone);
        const WorkflowTask& found = input_.tasks[task];
        if (found.pool != kNone) admission_.release(found.pool, rank);
        int64_t where = static_cast<int64_t>(place(task, rank));
        outcome_.ended_ps[where] = now_;
        if (outcome_.began_ps[where] < 0) outcome_.began_ps[where] = now_;
        if (++live_[task].ranks == input_.ranks) live_[task] = {};
        for (int64_t i = found.first_after; i < found.last_after; ++i) {
            int32_t follower = input_.followers[i];
            if (--part(follower, rank).needs == 0) enter(follower, rank);
        }
    }

    void find_stuck() {
        for (size_t where = 0; where < parts_.size(); ++where) {
            if (outcome_.ended_ps[where] >= 0 || parts_[where].needs > 0) continue;
            outcome_.stuck_task = static_cast<int32_t>(where / input_.ranks);
            outcome_.stuck_rank = static_cast<int32_t>(where % input_.ranks);
            outcome_.stuck_pool = admission_.wanted(outcome_.stuck_task, outcome_.stuck_rank);
            return;
        }
    }

    const WorkflowInput& input_;
    WorkflowOutcome& outcome_;
    Calendar calendar_;
    Servers servers_;
    Admission admission_;
    int64_t now_ = 0;
    std::vector<Part> parts_;
    std::vector<Live> live_;
    std::vector<At> ready_, applied_, done_, moving_;
};

}  // namespace

WorkflowOutcome run_workflow(const WorkflowInput& input, bool record, int64_t max_segments, int64_t max_time_ps) {
    WorkflowOutcome outcome;
    for (const WorkflowTask& task : input.tasks) {
        if (task.pattern == kNone) continue;
        outcome.segments += static_cast<int64_t>(input.patterns[task.pattern]->program.segments.size());
        if (outcome.segments > max_segments) throw TooMany("segments");
    }
    Flow(input, record, outcome).run(max_time_ps);
    return outcome;
}

}  // namespace weft
