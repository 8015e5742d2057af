// Python half: src/weft/simulation/workflow.py.
#include "simulation/workflow.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/work_limit.hpp"
#include "simulation/admission.hpp"
#include "simulation/servers.hpp"

namespace weft {

namespace {

// What every rank does next, and what each segment still waits for.
class WorkflowRun {
public:
    WorkflowRun(const WorkflowInput& input, bool record, WorkflowOutcome& outcome)
        : input_(input),
          outcome_(outcome),
          servers_(input, calendar_, outcome, record),
          admission_(input),
          parts_(input.tasks.size() * input.ranks),
          active_(input.tasks.size()) {
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
        WorkLimit work_limit;
        std::vector<WorkflowEvent> batch;
        while (!calendar_.empty()) {
            calendar_.pop(batch);
            now_ = batch.front().time;
            if (now_ > max_time_ps) throw std::overflow_error("simulated time");
            // Everything that happens at this instant, and all that it makes happen, comes before any server starts.
            do {
                outcome_.events += static_cast<int64_t>(batch.size());
                work_limit.spend(32 * batch.size());
                for (const WorkflowEvent& event : batch) handle(event);
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
    struct ActivePattern {  // counters of a pattern while a task carries it out
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

    void handle(const WorkflowEvent& event) {
        switch (event.kind) {
            case WorkflowEvent::Kind::hop: servers_.offer_segment(event.task, event.what, event.hop); break;
            case WorkflowEvent::Kind::arrive: need_apply(event.task, event.what); break;
            case WorkflowEvent::Kind::left: left(event.task, event.what); break;
            case WorkflowEvent::Kind::worked: done_.push_back({event.task, event.what}); break;
            case WorkflowEvent::Kind::free: servers_.is_free(event.what); break;
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
            calendar_.push({now_ + amount, task, rank, WorkflowEvent::Kind::worked});
        } else {
            servers_.offer_work(stage.first_resource + rank, task, rank, amount);
        }
    }

    void open(int32_t task, int32_t rank, const Stage& stage) {
        const Pattern& pattern = pattern_of(task);
        ActivePattern& active = active_[task];
        if (active.start_needs.empty()) {
            for (const Segment& segment : pattern.program.segments) {
                active.start_needs.push_back(segment.start_needs + 1);  // until its sender is in this part
                active.apply_needs.push_back(segment.apply_needs + 2);  // until it is there, and its receiver is, too
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
        if (--active_[task].start_needs[segment] == 0) ready_.push_back({task, segment});
    }

    void need_apply(int32_t task, int32_t segment) {
        if (--active_[task].apply_needs[segment] == 0) applied_.push_back({task, segment});
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
        if (++active_[task].ranks == input_.ranks) active_[task] = {};
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
    std::vector<ActivePattern> active_;
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
    WorkflowRun(input, record, outcome).run(max_time_ps);
    return outcome;
}

}  // namespace weft
