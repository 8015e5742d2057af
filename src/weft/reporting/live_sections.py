"""Sections of a report from objects that know more than their JSON: schedules that can run, recorded jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.algorithms import registry
from weft.bounds.collective_bound import condition_of, lower_bound
from weft.errors import LimitError, WeftError
from weft.export.chrome_trace import Tracks, process
from weft.reporting import result_forms as forms
from weft.reporting import result_sections as results
from weft.reporting.busiest_links import busiest_section
from weft.reporting.fabric_picture import LinkUse, fabric_section
from weft.reporting.path_words import path_sections
from weft.reporting.section_kinds import Section, table_section, text_section, words_section
from weft.reporting.trace_timeline import timeline_section
from weft.simulation.simulator import run_once, simulate
from weft.training.task_graph import TaskKind
from weft.training.timeline_trace import rank_events
from weft.training.trace_selection import ShownPart
from weft.verification import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.packets import PacketResult
    from weft.planning import Comparison, ComparisonRow, Plan
    from weft.schedule import Schedule
    from weft.simulation import SimulationResult
    from weft.topology import Topology
    from weft.training.job import TrainingResult

DEFAULT_SIZE: Final = 64 << 20
"""Size at which a schedule runs in the picture, unless another is given."""

_MOST_PREDICTED: Final = 40
_LAST_ITERATIONS: Final = 2


def topology_sections(topology: Topology) -> list[Section]:
    """Draw a topology."""
    return [fabric_section(topology)]


def plan_sections(plan: Plan, size: str | int | None) -> list[Section]:
    """What a plan chooses, why, and how it runs at one size."""
    size_bytes = plan.headline.size_bytes if size is None else units.parse_size(size)
    choice = plan.choose(size_bytes)
    # What was left out, and why, stands in the reasons.
    form = forms.convert(plan.to_dict() | {"skipped": []}, forms.PlanForm, "plan")
    ran = _run_sections(choice.schedule, size_bytes, choice.segment_bytes)
    reasons = text_section("Reasons of the plan", plan.explain())
    return [*results.plan_sections(form), *ran, reasons]


def schedule_sections(schedule: Schedule, size: str | int | None) -> list[Section]:
    """How a schedule runs at one size."""
    size_bytes = DEFAULT_SIZE if size is None else units.parse_size(size)
    return _run_sections(schedule, size_bytes, "auto")


def _run_sections(schedule: Schedule, size_bytes: int, segment: int | str | None) -> list[Section]:
    try:
        return run_sections(simulate(schedule, size_bytes, segment_bytes=segment))
    except LimitError as error:
        words = f"The schedule was not run for the picture: {error}"
        return [fabric_section(schedule.topology), words_section("Run", [words])]


def run_sections(result: SimulationResult) -> list[Section]:
    """One run: its times, the fabric with chunks that move, and the critical path."""
    schedule = result.schedule
    verified = inspect(schedule, max_work=None).problem is None
    bound = None
    if schedule.ownership != "free":
        root = schedule.root or 0
        bound = lower_bound(schedule.topology, schedule.collective, result.size_bytes, root)
    form = forms.SimulatedForm(
        topology=schedule.topology.name,
        collective=schedule.collective,
        algorithm=schedule.algorithm,
        size_bytes=result.size_bytes,
        seconds=result.seconds,
        time_ps=result.time_ps,
        link_busy_ps=[],
        critical_path=[],
        algbw_GBps=result.algbw_GBps,
        busbw_GBps=result.busbw_GBps,
        steps=schedule.steps,
        transfers=schedule.transfers,
        segment_bytes=result.segment_bytes,
        bound_seconds=None if bound is None else bound.seconds,
        bound_kind=None if bound is None else bound.kind,
        bound_condition=None
        if bound is None
        else condition_of(schedule.topology, schedule.collective, bound.kind),
        bound_explanation="" if bound is None else bound.explanation,
        # A wrong schedule may be faster than any right one.
        fraction_of_bound=bound.seconds / result.seconds
        if bound is not None and verified and result.time_ps
        else None,
        verified=verified,
    )
    use = _use(schedule.algorithm, result)
    return [
        *results.simulation_sections(form, draw=False),
        fabric_section(schedule.topology, [use]),
        busiest_section(schedule.topology, use.busy, use.label),
        *path_sections(result.critical_path, result.time_ps, schedule.topology),
    ]


def _use(label: str, result: SimulationResult) -> LinkUse:
    busy = result.link_busy_ps / max(result.time_ps, 1)
    what = f"{label}: {units.format_size(result.size_bytes)} in {units.human_seconds(result.seconds)}"
    return LinkUse(what, busy, result)


def comparison_fabric(found: Comparison) -> list[Section]:
    """The fabric under the fastest algorithm and beside it under a ring, or else the next best one."""
    rows = [row for row in found.results if row.verified and row.seconds]
    others = [row for row in rows[1:] if row.algorithm == "ring"] or rows[1:2]
    runs = [run for row in [*rows[:1], *others[:1]] if (run := _rerun(found, row)) is not None]
    if not runs:
        return topology_sections(found.topology)
    uses = [_use(label, result) for label, result in runs]
    return [
        fabric_section(found.topology, uses),
        busiest_section(found.topology, uses[0].busy, uses[0].label),
        *path_sections(
            runs[0][1].critical_path, runs[0][1].time_ps, found.topology, run=f"The run of {runs[0][0]}"
        ),
    ]


def _rerun(found: Comparison, row: ComparisonRow) -> tuple[str, SimulationResult] | None:
    """Run a row of a comparison again, which kept its time alone; None unless that gives the same time."""
    try:
        algorithm = registry.find(row.algorithm)
        schedule = algorithm.try_build(found.topology, found.collective, 0, expected_bytes=found.size_bytes)
        if isinstance(schedule, registry.Refusal):
            return None
        result = run_once(schedule, found.size_bytes, row.segment_bytes, found.sharing)
    except WeftError:
        return None
    # Another root, or options of the algorithm, make another schedule than the one of the row.
    return (row.label, result) if result.seconds == row.seconds else None


def predict(plan: Plan, sizes: Sequence[int]) -> dict[int, float]:
    """Times that a plan's choices take in the simulator, by size."""
    times = {}
    for size_bytes in sizes[:_MOST_PREDICTED]:
        choice = plan.choose(size_bytes)
        times[size_bytes] = simulate(choice.schedule, size_bytes, segment_bytes=choice.segment_bytes).seconds
    return times


def packet_run_sections(result: PacketResult) -> list[Section]:
    """A run packet by packet, with the use of links."""
    form = forms.convert(result.to_dict(), forms.PacketsForm, "result")
    busy = result.link_busy_ps / max(result.time_ps, 1)
    use = LinkUse(f"{result.tables.algorithm}, packet by packet", busy)
    return [
        *results.packet_sections(form, draw=False),
        fabric_section(result.tables.topology, [use]),
        busiest_section(result.tables.topology, busy, use.label),
    ]


def training_run_sections(result: TrainingResult) -> list[Section]:
    """A simulated job: figures, what rank 0 does when, its groups, and the use of links."""
    form = forms.convert(result.to_dict(), forms.TrainedForm, "result")
    use = LinkUse(f"{result.policy.name}, whole run", result.run.link_use)
    return [
        *results.training_sections(form),
        timeline_section("Training timeline by group, rank 0", _last_iterations(result)),
        *_groups(result),
        fabric_section(result.cluster.topology, [use]),
        busiest_section(result.cluster.topology, result.run.link_use, use.label),
    ]


def _last_iterations(result: TrainingResult) -> Iterator[dict[str, Any]]:
    """Events of rank 0 in the last iterations, which have settled; each kind of task has its own tracks."""
    first = max(result.run.iterations - _LAST_ITERATIONS, 0)
    graph, run = result.graph, result.run
    nothing, every = np.zeros(0, np.int64), np.arange(len(graph.tasks))
    shown = ShownPart((0,), (0, run.run_ps), every, nothing, "")
    events = list(rank_events(graph, run, 0, shown, Tracks()))
    begin = min((event["ts"] for event in events if event["args"].get("iteration", -1) >= first), default=0.0)
    yield from process(3, "rank 0")
    yield from (event for event in events if event["ph"] == "M" or event["ts"] >= begin)


def _gradients(size_bytes: int) -> str:
    """A size in the unit in which it has digits before the point."""
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.2f} {unit}"
    return units.count(size_bytes, "byte")


def _groups(result: TrainingResult) -> list[Section]:
    """When each group of gradients was sent in the last iteration, and how much of that computing hid."""
    run, last = result.run, result.run.iterations - 1
    rows = []
    tasks = [
        (number, task)
        for number, task in enumerate(result.graph.tasks)
        if task.kind is TaskKind.COLLECTIVE and task.iteration == last and task.size_bytes
    ]
    begin = min((int(run.began_ps[number, 0]) for number, _ in tasks), default=0)
    for number, task in sorted(tasks, key=lambda item: int(run.began_ps[item[0], 0])):
        start, end = int(run.began_ps[number, 0]), int(run.ended_ps[number, 0])
        rows.append(
            (
                task.name if task.group < 0 else f"{task.name} {task.group}",
                _gradients(task.size_bytes),
                units.human_seconds((start - begin) / 1e12),
                units.human_seconds((end - begin) / 1e12),
                units.human_seconds((end - start) / 1e12),
            )
        )
    if not rows:
        return []
    heads = ("collective and group", "gradients", "starts", "ends", "takes")
    note = "Last iteration, seen from rank 0; times count from the first of these collectives."
    return [table_section("Groups of gradients", heads, rows, note=note)]
