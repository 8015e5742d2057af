// What serves one thing at a time: links, and the resources of ranks.
// Python half: src/weft/simulation/workflow.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/radix_queue.hpp"
#include "simulation/dependency_tracker.hpp"
#include "simulation/server_queues.hpp"
#include "simulation/workflow.hpp"

namespace weft {

struct WorkflowEvent {
    enum class Kind : uint32_t { hop, arrive, left, worked, free };

    int64_t time;
    int32_t task;
    int32_t what;  // a segment; a rank for `worked`; a resource for `free`
    Kind kind : 3;
    uint32_t hop : 29;

    WorkflowEvent(int64_t when, int32_t of, int32_t thing, Kind event, uint32_t at = 0)
        : time(when), task(of), what(thing), kind(event), hop(at) {}
};

using Calendar = RadixQueue<WorkflowEvent>;

inline int64_t scaled(int64_t bytes, const Hop& hop) {
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
        : input_(input), calendar_(calendar), outcome_(outcome), record_(record), queues_(input.rate.size()) {}

    void offer_work(int32_t resource, int32_t task, int32_t rank, int64_t bytes) {
        queues_.offer(resource, {input_.tasks[task].priority, 0, bytes, task, rank, kWork});
    }

    void offer_segment(int32_t task, int32_t segment, uint32_t hop) {
        const Pattern& pattern = *input_.patterns[input_.tasks[task].pattern];
        const Hop& here = pattern.path(segment)[hop];
        const Segment& found = pattern.program.segments[segment];
        int64_t bytes = scaled(found.bytes, here);
        queues_.offer(here.resource,
                      {input_.tasks[task].priority, pattern.program.key(segment) + 1, bytes, task, segment, hop});
    }

    void is_free(int32_t resource) { queues_.is_free(resource); }

    void start(int64_t now) {
        queues_.start(
            now, [&](int32_t resource, const Waiting& next) { serve(resource, next, now); },
            [&](int64_t when, int32_t resource) { calendar_.push({when, 0, resource, WorkflowEvent::Kind::free}); });
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

        struct Later {
            bool operator()(const Waiting& a, const Waiting& b) const {
                if (a.priority != b.priority) return a.priority > b.priority;
                return a.task != b.task ? a.task > b.task : a.key > b.key;
            }
        };
    };

    int64_t duration(int32_t resource, int64_t bytes) {
        return queues_.duration(resource, bytes, input_.rate[resource]);
    }

    void serve(int32_t resource, const Waiting& next, int64_t now) {
        int64_t held = duration(resource, next.bytes);
        queues_.occupy(resource, now + held);
        outcome_.busy_ps[resource] += held;
        bool works = next.hop == kWork;
        if (record_) record(next.task, works ? kNone : next.what, resource, now, now + held);
        int64_t head = now + input_.latency_ps[resource];
        if (works) {
            calendar_.push({head + held, next.task, next.what, WorkflowEvent::Kind::worked});
            return;
        }
        const Pattern& pattern = *input_.patterns[input_.tasks[next.task].pattern];
        auto path = pattern.path(next.what);
        if (next.hop == 0) calendar_.push({now + held, next.task, next.what, WorkflowEvent::Kind::left});
        if (next.hop + 1 == path.size()) {
            calendar_.push({head + held, next.task, next.what, WorkflowEvent::Kind::arrive});
        } else {
            // A slow feeder must not starve a fast server: that one starts late enough never to run dry.
            const Hop& then = path[next.hop + 1];
            int64_t onward = duration(then.resource, scaled(pattern.program.segments[next.what].bytes, then));
            calendar_.push({head + std::max<int64_t>(0, held - onward), next.task, next.what, WorkflowEvent::Kind::hop,
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
    ServerQueues<Waiting> queues_;
};

}  // namespace weft
