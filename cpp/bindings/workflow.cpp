// Workflows as Python sees them.
// Python half: src/weft/simulation/workflow.py.
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>

#include <stdexcept>

#include "bindings/arrays.hpp"
#include "bindings/constructor.hpp"
#include "bindings/module.hpp"
#include "bindings/table.hpp"
#include "simulation/workflow.hpp"

namespace weft {
namespace {

// Rows of (first resource, numerator for copies, for reductions, denominator).
std::vector<EndpointHop> endpoint_hops(const In<int32_t>& flat) {
    std::vector<EndpointHop> hops;
    auto numbers = view(flat);
    for (size_t i = 0; i + 3 < numbers.size(); i += 4) {
        hops.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
    }
    return hops;
}

Pattern* make_pattern_py(const Table& table, int32_t ranks, int32_t slots, In<int64_t> chunk_bytes,
                         int64_t segment_bytes, In<int32_t> pair_src, In<int32_t> pair_dst, int32_t explicit_routes,
                         In<int64_t> path_offsets, In<int32_t> path_links, In<int32_t> part_of_step, In<int32_t> before,
                         In<int32_t> after, int64_t max_segments) {
    Network network{{}, {}, view(path_offsets), view(path_links)};
    nb::gil_scoped_release release;
    std::vector<int64_t> pairs(pair_src.shape(0));
    for (size_t i = 0; i < pairs.size(); ++i) {
        pairs[i] = static_cast<int64_t>(pair_src.data()[i]) * ranks + pair_dst.data()[i];
    }
    return new Pattern(make_pattern(table.rows(), {view(chunk_bytes), segment_bytes, ranks, slots, max_segments},
                                    network, pairs, explicit_routes, view(part_of_step), endpoint_hops(before),
                                    endpoint_hops(after)));
}

// The stages of all tasks, in columns.
struct StageColumns {
    In<int32_t> pattern, part, resource;
    In<int64_t> amounts;
    In<int32_t> pool;
};

// The tasks of a workflow, in columns.
struct TaskColumns {
    In<int64_t> priority;
    In<int32_t> stage_start, pool;
    In<int64_t> need_start;
    In<int32_t> needs;
};

std::vector<Stage> make_stages(const StageColumns& columns) {
    size_t count = columns.pattern.shape(0);
    if (columns.part.shape(0) != count || columns.resource.shape(0) != count || columns.amounts.shape(0) != count ||
        columns.pool.shape(0) != count) {
        throw std::invalid_argument("columns differ in length");
    }
    std::vector<Stage> stages(count);
    for (size_t i = 0; i < count; ++i) {
        stages[i] = {columns.pattern.data()[i], columns.part.data()[i], columns.resource.data()[i],
                     columns.amounts.data()[i], columns.pool.data()[i]};
    }
    return stages;
}

// Tasks from their columns; the edges are turned round, from what a task waits for to what waits for it.
void make_tasks(WorkflowInput& input, const TaskColumns& columns) {
    auto priority = view(columns.priority), need_start = view(columns.need_start);
    auto stage_start = view(columns.stage_start), pool = view(columns.pool), needs = view(columns.needs);
    input.tasks.resize(priority.size());
    std::vector<int64_t> count(priority.size() + 1, 0);
    for (int32_t before : needs) ++count[before + 1];
    for (size_t i = 1; i < count.size(); ++i) count[i] += count[i - 1];
    input.followers.resize(needs.size());
    std::vector<int64_t> next(count.begin(), count.end() - 1);
    for (size_t id = 0; id < input.tasks.size(); ++id) {
        WorkflowTask& task = input.tasks[id];
        task.priority = priority[id];
        task.first_stage = stage_start[id];
        task.last_stage = stage_start[id + 1];
        task.pool = pool[id];
        task.needs = static_cast<int32_t>(need_start[id + 1] - need_start[id]);
        task.first_after = count[id];
        task.last_after = count[id + 1];
        if (task.pool != kNone) task.pools |= uint64_t{1} << task.pool;
        for (int32_t i = task.first_stage; i < task.last_stage; ++i) {
            const Stage& stage = input.stages[i];
            if (stage.pool != kNone) task.pools |= uint64_t{1} << stage.pool;
            if (stage.pattern != kNone) task.pattern = stage.pattern;
        }
        for (int64_t i = need_start[id]; i < need_start[id + 1]; ++i) {
            input.followers[next[needs[i]]++] = static_cast<int32_t>(id);
        }
    }
}

nb::typed<nb::dict, nb::str, nb::any> run_workflow_py(int32_t ranks, In<int64_t> rate, In<int64_t> latency_ps,
                                                      In<int32_t> capacity, const std::vector<const Pattern*>& patterns,
                                                      const StageColumns& stages, In<int64_t> amounts,
                                                      const TaskColumns& tasks, bool record, int64_t max_segments,
                                                      int64_t max_time_ps) {
    WorkflowInput input{ranks, view(rate), view(latency_ps), view(capacity), patterns, {}, {}, {}, view(amounts)};
    input.stages = make_stages(stages);
    make_tasks(input, tasks);
    WorkflowOutcome outcome;
    {
        nb::gil_scoped_release release;
        outcome = run_workflow(input, record, max_segments, max_time_ps);
    }
    nb::dict result;
    result["time_ps"] = outcome.time_ps;
    result["segments"] = outcome.segments;
    result["events"] = outcome.events;
    result["stuck_task"] = outcome.stuck_task;
    result["stuck_rank"] = outcome.stuck_rank;
    result["stuck_pool"] = outcome.stuck_pool;
    result["began_ps"] = to_numpy(std::move(outcome.began_ps));
    result["ended_ps"] = to_numpy(std::move(outcome.ended_ps));
    result["busy_ps"] = to_numpy(std::move(outcome.busy_ps));
    if (record) {
        std::vector<int64_t> bytes;
        for (size_t i = 0; i < outcome.span_task.size(); ++i) {
            int32_t segment = outcome.span_segment[i];
            int32_t pattern = input.tasks[outcome.span_task[i]].pattern;
            bytes.push_back(segment == kNone ? 0 : patterns[pattern]->program.segments[segment].bytes);
        }
        result["span_bytes"] = to_numpy(std::move(bytes));
        result["span_task"] = to_numpy(std::move(outcome.span_task));
        result["span_segment"] = to_numpy(std::move(outcome.span_segment));
        result["span_resource"] = to_numpy(std::move(outcome.span_resource));
        result["span_start_ps"] = to_numpy(std::move(outcome.span_start_ps));
        result["span_end_ps"] = to_numpy(std::move(outcome.span_end_ps));
    }
    return result;
}

}  // namespace

void bind_workflow(nb::module_& m) {
    nb::class_<Pattern>(m, "Pattern", "A collective as many tasks carry it out; see weft.simulation.workflow.")
        .def_prop_ro("segments", [](const Pattern& pattern) { return pattern.program.segments.size(); })
        .def_ro("parts", &Pattern::parts);
    m.def("make_pattern", &make_pattern_py, nb::rv_policy::take_ownership, nb::kw_only(), nb::arg("table"),
          nb::arg("ranks"), nb::arg("slots"), nb::arg("chunk_bytes"), nb::arg("segment_bytes"), nb::arg("pair_src"),
          nb::arg("pair_dst"), nb::arg("explicit_routes"), nb::arg("path_offsets"), nb::arg("path_links"),
          nb::arg("part_of_step"), nb::arg("before"), nb::arg("after"), nb::arg("max_segments"),
          "Lower a schedule once, for many tasks.");
    nb::class_<StageColumns>(m, "StageColumns", "The stages of all tasks of a workflow, in columns.")
        .def("__init__",
             &Constructor<StageColumns, In<int32_t>, In<int32_t>, In<int32_t>, In<int64_t>, In<int32_t>>::init,
             nb::kw_only(), nb::arg("pattern"), nb::arg("part"), nb::arg("resource"), nb::arg("amounts"),
             nb::arg("pool"));
    nb::class_<TaskColumns>(m, "TaskColumns", "The tasks of a workflow, in columns.")
        .def("__init__",
             &Constructor<TaskColumns, In<int64_t>, In<int32_t>, In<int32_t>, In<int64_t>, In<int32_t>>::init,
             nb::kw_only(), nb::arg("priority"), nb::arg("stage_start"), nb::arg("pool"), nb::arg("need_start"),
             nb::arg("needs"));
    m.def("run_workflow", &run_workflow_py, nb::kw_only(), nb::arg("ranks"), nb::arg("rate"), nb::arg("latency_ps"),
          nb::arg("capacity"), nb::arg("patterns"), nb::arg("stages"), nb::arg("amounts"), nb::arg("tasks"),
          nb::arg("record"), nb::arg("max_segments"), nb::arg("max_time_ps"),
          "Carry out a graph of tasks; see weft.simulation.workflow.");
}

}  // namespace weft
