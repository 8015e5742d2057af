"""``weft simulate``: run one schedule on its simulated network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft import limits
from weft.cli import options
from weft.cli.busiest import print_busiest_links
from weft.cli.inputs import ScheduleSource, takes_schedule
from weft.cli.output import (
    check_outputs,
    human_speed,
    make_console,
    make_table,
    print_json,
    progress,
    warn_of,
    write_page,
)
from weft.errors import printable

if TYPE_CHECKING:
    from weft.bounds.collective_bound import Bound
    from weft.cli.console import Console
    from weft.schedule import Schedule
    from weft.simulation import SimulationResult
    from weft.simulation.simulator import Sharing

_PATH_ENDS = 3
_JSON_WORK = 10_000.0
"""Operations to write one stretch of the critical path."""


@click.command(
    "simulate",
    epilog=options.examples(
        "weft simulate ring.weft --size 64MiB",
        "weft simulate torus:8x8 --algorithm bucket --size 64MiB --trace trace.json",
        "weft simulate plan.weft --size 3MB",
        "weft simulate ring.weft --size 1GB --segment 1MiB --sharing fluid --json",
    ),
)
@options.size
@takes_schedule("SCHEDULE|PLAN|TOPOLOGY")
@options.segment
@options.sharing
@options.trace
@options.report
@options.max_work(limits.MAX_WORK)
@options.as_json
def command(
    source: ScheduleSource,
    size: int,
    segment: str | int,
    sharing: Sharing,
    trace: str | None,
    page: str | None,
    max_work: float | None,
    as_json: bool,
) -> None:
    """Run one schedule on its simulated network.

    SCHEDULE is a file that weft export wrote, or - for one on standard input. A PLAN, which weft plan wrote,
    runs what it chooses for the size, in its segments unless --segment says otherwise. With --algorithm, a
    TOPOLOGY stands there instead and the schedule is built on the spot.

    The time is that of a schedule as it stands. One that the verifier rejects has a time as well, and a
    warning on standard error; weft verify says more.
    """
    from weft.export import write_trace
    from weft.planning import Plan
    from weft.simulation import simulate
    from weft.verification.inspection import find_problem

    check_outputs(trace, page, as_json=as_json)
    with progress("simulate") as report:
        report("schedule", 0, 0)
        found = source.obtain(max_work)
        if isinstance(found, Plan):
            choice = found.choose(size)
            found = choice.schedule
            segment = (choice.segment_bytes or "none") if segment == "auto" else segment
        report(f"{found.transfers:,} transfers", 0, 0)
        if trace is not None:
            _check_trace(found, size, segment, max_work)
        recorded = trace is not None
        result = simulate(
            found, size, segment_bytes=segment, sharing=sharing, record=recorded, max_work=max_work
        )
        problem = find_problem(found, max_work=max_work)
        bound = _find_bound(found, size)
        if trace is not None:
            write_trace(found, result, trace)
    warn_of(problem)
    # A wrong schedule may be faster than any right one.
    fraction = None if bound is None or problem else bound.seconds / result.seconds
    if as_json:
        from weft.bounds.collective_bound import condition_of

        limits.check_work("the critical path as JSON", _JSON_WORK * len(result.critical_path), max_work)
        limit = {
            "bound_seconds": bound and bound.seconds,
            "bound_kind": bound and bound.kind,
            "bound_condition": bound and condition_of(found.topology, found.collective, bound.kind),
            "fraction_of_bound": fraction,
        }
        print_json(result.to_dict() | limit | {"verified": problem is None})
    elif trace != "-":
        _show(result, bound, fraction, make_console())
        if trace is not None:
            click.echo(f"\nwrote {printable(trace)}")
    write_page(page, result, as_json=as_json or trace == "-")


def _find_bound(plan: Schedule, size: int) -> Bound | None:
    """Bound of what a schedule does; there is none for shards that a schedule may deal out as it likes."""
    from weft.bounds.collective_bound import lower_bound

    if plan.ownership == "free":
        return None
    return lower_bound(plan.topology, plan.collective, size, plan.root or 0)


def _check_trace(plan: Schedule, size: int, segment: str | int, max_work: float | None) -> None:
    """Refuse before the run what could not be written after it."""
    from weft.export.simulation_trace import check_trace
    from weft.simulation.segment_sizes import count_segments, parse_segment, segment_candidates

    cut = parse_segment(segment)
    finest = segment_candidates(plan, size)[0][-1] if isinstance(cut, str) else cut
    check_trace(plan, count_segments(plan, size, finest), max_work)


def _show(result: SimulationResult, bound: Bound | None, fraction: float | None, console: Console) -> None:
    from weft.units import format_size, human_seconds

    plan = result.schedule
    head = f"{plan.algorithm} {plan.collective} of {format_size(result.size_bytes)} on {plan.topology.name}"
    console.print_line(printable(head), "bold")
    cut = (
        "whole messages"
        if result.segment_bytes is None
        else f"segments of {format_size(result.segment_bytes)}"
    )
    how = f"{result.sharing} sharing"
    if result.untried_segments:
        untried = ", ".join(map(format_size, result.untried_segments))
        how += f"; not tried, because they would be too many: {untried}"
    slowest = result.slowest_rank
    console.print_facts(
        ("time", human_seconds(result.seconds)),
        *_limit_facts(bound, fraction, plan),
        ("algbw", human_speed(result.algbw_GBps)),
        ("busbw", human_speed(result.busbw_GBps)),
        ("schedule", f"{plan.steps:,} steps, {plan.transfers:,} transfers, {plan.messages:,} messages"),
        ("run", f"{cut}, {result.segments:,} in all; {how}"),
        ("last rank", f"{slowest}, at {human_seconds(int(result.rank_finish_ps[slowest]) / 1e12)}"),
        ("path", _path_summary(result)),
    )
    console.print()
    print_busiest_links(console, plan.topology, result.link_busy_ps, result.time_ps)
    console.print()
    _show_path(result, console)


def _limit_facts(bound: Bound | None, fraction: float | None, plan: Schedule) -> list[tuple[str, str]]:
    """What no schedule can beat, if that is known, and how near a correct one comes to it."""
    from weft.bounds.collective_bound import kind_text
    from weft.units import human_seconds

    if bound is None:
        return []
    kind = kind_text(plan.topology, plan.collective, bound.kind)
    facts = [("bound", f"{human_seconds(bound.seconds)} ({kind}); {printable(bound.explanation)}")]
    if fraction is not None:
        facts.append(("of bound", f"{100 * fraction:.1f} %"))
    return facts


def _path_summary(result: SimulationResult) -> str:
    path = result.critical_path
    waits = path.count_waits()
    return (
        f"{len(path):,} transfers, one after the other, take the time: "
        f"{waits['dependency']:,} waited for data, {waits['link']:,} for a link"
    )


def _show_path(result: SimulationResult, console: Console) -> None:
    from weft.units import human_seconds

    path = result.critical_path
    table = make_table(
        "critical path", "step", "chunk", "starts", "ends", "waited for", left=("critical path", "waited for")
    )
    cut = len(path) > 2 * _PATH_ENDS + 1
    shown = [*path[:_PATH_ENDS], None, *path[-_PATH_ENDS:]] if cut else list(path)
    for step in shown:
        if step is None:
            table.add_row(f"... {len(path) - 2 * _PATH_ENDS:,} more", "", "", "", "", "")
            continue
        table.add_row(
            f"rank {step.src} to {step.dst}",
            str(step.step),
            str(step.chunk),
            human_seconds(step.start_ps / 1e12),
            human_seconds(step.end_ps / 1e12),
            {"start": "nothing", "dependency": "data", "link": "a link"}[step.waited_for],
        )
    console.print_table(table)
