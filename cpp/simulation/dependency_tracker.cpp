// Python half: src/weft/simulation/simulator.py.
#include "simulation/dependency_tracker.hpp"

#include <algorithm>
#include <stdexcept>

namespace weft {

DependencyTracker::DependencyTracker(Program& program, const Rows& rows, int32_t ranks, EventQueue& queue)
    : program_(program), rows_(rows), queue_(queue), state_(program.segments.size()), rank_finish_(ranks, 0) {
    for (size_t id = 0; id < program.segments.size(); ++id) {
        if (program.segments[id].start_needs == 0) ready_.push_back(static_cast<int32_t>(id));
    }
}

const std::vector<int32_t>& DependencyTracker::take_ready() {
    handed_.clear();
    handed_.swap(ready_);
    return handed_;
}

void DependencyTracker::need_start(int32_t segment, int32_t from) {
    if (--program_.segments[segment].start_needs > 0) return;
    state_[segment].start_cause = from;
    ready_.push_back(segment);
}

void DependencyTracker::leaves(int32_t segment, int64_t when, int64_t now) {
    int32_t rank = rank_from(segment);
    rank_finish_[rank] = std::max(rank_finish_[rank], when);
    for (int32_t edge = program_.segments[segment].when_left; edge != kNone; edge = program_.edges[edge].next) {
        met(static_cast<int32_t>(program_.edges[edge].target >> 1), segment, when, now);
    }
}

// One of the conditions of a segment's apply is known to hold from `when` on.
void DependencyTracker::met(int32_t segment, int32_t by, int64_t when, int64_t now) {
    State& state = state_[segment];
    if (when > state.apply_after) {
        state.apply_after = when;
        state.apply_cause = by;
    }
    if (--program_.segments[segment].apply_needs == 0 && state.applied_ps >= 0) try_apply(segment, now);
}

void DependencyTracker::arrived(int32_t segment, int64_t now) {
    state_[segment].applied_ps = now;
    try_apply(segment, now);
}

void DependencyTracker::try_apply(int32_t segment, int64_t now) {
    if (program_.segments[segment].apply_needs > 0) return;
    if (state_[segment].apply_after > now) {
        queue_.push({state_[segment].apply_after, segment, Kind::apply});
    } else {
        apply(segment, now);
    }
}

void DependencyTracker::handle(const Event& event) {
    switch (event.kind) {
        case Kind::arrive: arrived(event.id, event.time); break;
        case Kind::apply: apply(event.id, event.time); break;
        default: throw std::logic_error("an event of the network reached the dependency tracker");
    }
}

// An apply can set off others at the same instant; a list instead of recursion, since chains can be long.
void DependencyTracker::apply(int32_t segment, int64_t now) {
    due_.push_back(segment);
    if (applying_) return;
    applying_ = true;
    while (!due_.empty()) {
        int32_t next = due_.back();
        due_.pop_back();
        apply_one(next, now);
    }
    applying_ = false;
}

void DependencyTracker::apply_one(int32_t segment, int64_t now) {
    State& state = state_[segment];
    if (state.applied_ps == now) state.apply_cause = kNone;  // it was not held up after its arrival
    state.applied_ps = now;
    last_applied_ = segment;
    int32_t rank = rank_to(segment);
    rank_finish_[rank] = std::max(rank_finish_[rank], now);
    for (int32_t edge = program_.segments[segment].when_applied; edge != kNone; edge = program_.edges[edge].next) {
        uint32_t target = program_.edges[edge].target;
        auto other = static_cast<int32_t>(target >> 1);
        if ((target & 1) == 0) {
            need_start(other, segment);
        } else {
            met(other, segment, now, now);
        }
    }
}

void DependencyTracker::finish(Outcome& outcome) {
    outcome.rank_finish_ps = rank_finish_;
    int32_t last = kNone;
    for (size_t id = 0; id < state_.size(); ++id) {
        if (program_.segments[id].start_needs > 0 || program_.segments[id].apply_needs > 0 ||
            state_[id].applied_ps < 0) {
            outcome.stuck = static_cast<int32_t>(id);
            return;
        }
        if (last == kNone || state_[id].applied_ps > state_[last].applied_ps) last = static_cast<int32_t>(id);
    }
    if (last == kNone) return;
    outcome.time_ps = state_[last].applied_ps;
    trace_back(last, outcome);
}

// Backwards from the last apply: from a segment to the one that held it up at its end, on its way, or at its start. Time
// falls strictly with every wait for a link, and the other causes follow the dependencies, so this ends.
void DependencyTracker::trace_back(int32_t last, Outcome& outcome) {
    int64_t end = outcome.time_ps;
    bool by_cause = false;  // came here because a segment waited for this one, not for its link
    for (int32_t at = last; at != kNone;) {
        State& state = state_[at];
        if (state.apply_cause != kNone && end == state.applied_ps) {
            outcome.critical_path.push_back({at, Waited::dependency, end, end});
            at = state.apply_cause;
            by_cause = true;
            continue;
        }
        // A segment that waited until this one had left, and not until it was applied, does not depend on its later links.
        bool until_left = by_cause && end < state.applied_ps;
        int64_t before = until_left ? std::min(end, state.start_ps + 1) : end;
        int32_t none = kNone;
        int32_t& wait = latest_wait_.empty() ? none : latest_wait_[at];
        while (wait != kNone && waits_[wait].until >= before) wait = waits_[wait].before;
        by_cause = wait == kNone;
        if (wait != kNone) {
            outcome.critical_path.push_back({at, Waited::link, waits_[wait].until, end});
            end = waits_[wait].until;
            at = waits_[wait].holder;
        } else {
            Waited waited = state.start_cause == kNone ? Waited::start : Waited::dependency;
            outcome.critical_path.push_back({at, waited, state.start_ps, end});
            end = state.start_ps;
            at = state.start_cause;
        }
    }
}

}  // namespace weft
