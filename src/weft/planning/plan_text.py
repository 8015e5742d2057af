"""A plan in words, on one screen."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Final

from weft.bounds.collective_bound import kind_text
from weft.notebook_display import html_card
from weft.planning.fastest_by_size import RANGE_TOLERANCE
from weft.planning.plans import make_label
from weft.units import count, format_size, human_bandwidth, human_seconds

if TYPE_CHECKING:
    from weft.planning.plans import Contender, Plan, PlanPoint

WIDTH: Final = 80
_SECONDS: Final = 3
_LABEL: Final = 12
_LONG_NAME: Final = 8
_TOLERATED: Final = (
    "for which no new range of sizes begins; a plan that is asked for the size takes the best one there"
)


def explain(plan: Plan, width: int = WIDTH) -> str:
    """Say what a plan chooses where, how good it is, what limits it, what came second, and what was left out.

    Examples
    --------
    >>> from weft.planning import plan
    >>> print(explain(plan("ring:8", "64MiB", algorithms=["ring", "bidirectional_ring"])))
    all_reduce on ring:8: 8 ranks, 16 links
    bidirectional_ring at all sizes; 99.4 % of the proven bound at 64MiB; bottleneck
    link 0->1
    <BLANKLINE>
     size  algorithm           segment  time      of bound  runner-up
    64MiB  bidirectional_ring  whole    2.363 ms    99.4 %  ring +99.4 %
    <BLANKLINE>
    bound       2.349 ms at 64MiB (bandwidth: singletons)
    bottleneck  link 0->1 (25GB/s), busy 99.4 % of the time
    others      ring +99.4 % at 64MiB
    planned in  ... CPU seconds, ... simulations of 2 schedules, all verified
    """
    topology = plan.topology
    parts = [count(topology.ranks, "rank"), count(topology.links, "link")]
    if topology.switches:
        parts.insert(1, count(topology.switches, "switch"))
    lines = _wrap(f"{plan.collective} on {topology.name}: {', '.join(parts)}", width)
    lines += _wrap(summarise(plan), width)
    lines += ["", *_table(plan), ""]
    for name, text in _notes(plan):
        lines += _wrap(text, width, name)
    return "\n".join(lines)


def _wrap(text: str, width: int, name: str = "") -> list[str]:
    """Lines of a text, behind a name if it has one; a number stays with its percent sign."""
    indent = " " * _LABEL if name else ""
    bound = text.replace(" %", "\u00a0%")
    lines = textwrap.wrap(bound, width, initial_indent=name.ljust(len(indent)), subsequent_indent=indent)
    return [line.replace("\u00a0", " ") for line in lines]


def summarise(plan: Plan) -> str:
    """One sentence: ``multitree up to 3MiB, forest above; 97.1 % of the proven bound at 1GiB; ..``."""
    point = plan.headline
    link = plan.topology.link_name(point.busiest_link)
    good = f"{100 * point.fraction_of_bound:.1f} % of the proven bound at {human_size(point.size_bytes)}"
    text = f"{_span_text(plan)}; {good}; bottleneck link {link}"
    return text if plan.complete else f"{text}; there may be better plans, the search was cut short"


def _span_text(plan: Plan) -> str:
    """Algorithms and where one follows the other, whatever their variants and segments."""
    runs = [
        (name, list(spans))
        for name, spans in groupby(plan.ranges, key=lambda span: plan.schedules[span.schedule].algorithm)
    ]
    if len(runs) == 1:
        return f"{runs[0][0]} at all sizes"
    ends = [spans[-1].last_bytes for _, spans in runs]
    parts = [
        f"{name} above" if end is None else f"{name} below {human_size(end + 1)}"
        for (name, _), end in zip(runs, ends, strict=True)
    ]
    return ", ".join(parts)


def _table(plan: Plan) -> list[str]:
    head = ("size", "algorithm", "segment", "time", "of bound", "runner-up")
    rows = [head, *(_row(plan, point) for point in plan.points)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0], cells[4] = row[0].rjust(widths[0]), row[4].rjust(widths[4])
        lines.append("  ".join(cells).rstrip())
    return lines


def _row(plan: Plan, point: PlanPoint) -> tuple[str, ...]:
    segment = plan.choose(point.size_bytes).segment_bytes
    second = "-"
    if point.runner_up is not None and point.runner_up_seconds is not None:
        name = point.runner_up.partition(" (")[0]
        sign = "" if point.runner_up_simulated else "~"
        second = f"{name} {sign}{100 * (point.runner_up_seconds / point.seconds - 1):+.1f} %"
    return (
        human_size(point.size_bytes),
        plan.schedules[plan.ranges[point.range].schedule].algorithm,
        "whole" if segment is None else human_size(segment),
        f"{'' if point.simulated else '~'}{human_seconds(point.seconds)}",
        f"{100 * point.fraction_of_bound:.1f} %",
        second,
    )


def _notes(plan: Plan) -> list[tuple[str, str]]:
    point, topology = plan.headline, plan.topology
    at = human_size(point.size_bytes)
    link = point.busiest_link
    speed = human_bandwidth(int(topology.bandwidth[link]))
    kind = kind_text(topology, plan.collective, point.bound_kind)
    notes = [
        ("bound", f"{human_seconds(point.bound_seconds)} at {at} ({kind})"),
        (
            "bottleneck",
            f"link {topology.link_name(link)} ({speed}), busy {100 * point.busy:.1f} % of the time",
        ),
    ]
    if not all(one.simulated and one.runner_up_simulated for one in plan.points):
        notes.insert(0, ("~", "estimated from simulations of other sizes"))
    variants = [planned.label for planned in plan.schedules if planned.variant]
    if variants:
        notes.insert(0, ("variants", ", ".join(variants)))
    best: dict[str, Contender] = {}
    for contender in plan.contenders:
        if contender.algorithm != plan.algorithm:
            best.setdefault(contender.algorithm, contender)
    if best:
        texts = [_compared(contender, point.seconds) for contender in list(best.values())[:_SECONDS]]
        notes.append(("others", f"{', '.join(texts)} at {at}"))
    if any((second := one.runner_up_seconds) is not None and second < one.seconds for one in plan.points):
        limit = f"{100 * (RANGE_TOLERANCE - 1):g} %"
        notes.append(("switching", f"a runner-up that is faster is so by less than {limit}, {_TOLERATED}"))
    names: dict[str, list[str]] = {}
    for one in plan.skipped:
        # The topology's name is in the first line, and may be long; a short one may be a part of other words.
        is_long = len(topology.name) >= _LONG_NAME
        reason = one.reason.replace(topology.name, "this") if is_long else one.reason
        names.setdefault(reason, []).append(one.algorithm)
    reasons = [f"{', '.join(same)}: {reason}" for reason, same in names.items()]
    notes += [("skipped" if index == 0 else " ", reason) for index, reason in enumerate(reasons)]
    work = f"{plan.simulations} simulations of {count(len(plan.contenders), 'schedule')}, all verified"
    notes.append(("planned in", f"{plan.cpu_seconds:.2f} CPU seconds, {work}"))
    return notes


def _compared(contender: Contender, seconds: float) -> str:
    """How much longer a contender takes, with a sign before what is an estimate."""
    sign = "" if contender.simulated else "~"
    return f"{contender.algorithm} {sign}{100 * (contender.seconds / seconds - 1):+.1f} %"


def human_size(size_bytes: int) -> str:
    """At most three digits, for people; what is exact in three, in either kind of unit, stays exact.

    Examples
    --------
    >>> human_size(4096), human_size(3_276_800), human_size(1_500_000), human_size(1_234_567)
    ('4KiB', '3.12MiB', '1.5MB', '1.18MiB')
    """
    exact = format_size(size_bytes)
    if sum(sign.isdigit() for sign in exact) <= 3:
        return exact
    value, unit = float(size_bytes), 0
    while value >= 1000 and unit < 4:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g}{('', 'Ki', 'Mi', 'Gi', 'Ti')[unit]}B"


def plan_card(plan: Plan) -> str:
    """What is chosen at which size, with its time and the bound, as a notebook shows it."""
    columns = ("size", "algorithm", "segment", "time", "bound", "of bound", "second")
    rows = []
    for point in plan.points:
        choice = plan.choose(point.size_bytes)
        second = "-"
        if point.runner_up is not None and point.runner_up_seconds is not None:
            sign = "" if point.runner_up_simulated else "~"
            second = f"{point.runner_up}, {sign}{human_seconds(point.runner_up_seconds)}"
        rows.append(
            [
                format_size(point.size_bytes),
                make_label(choice.algorithm, choice.variant),
                "-" if choice.segment_bytes is None else format_size(choice.segment_bytes),
                f"{'' if point.simulated else '~'}{human_seconds(point.seconds)}",
                human_seconds(point.bound_seconds),
                f"{100 * point.fraction_of_bound:.1f} %",
                second,
            ]
        )
    facts = [
        ("complete", "yes" if plan.complete else "no: a time limit ended the search, or more may follow"),
        ("schedules", f"{len(plan.schedules):,}, each verified"),
        ("planning", f"{plan.simulations:,} simulations in {plan.cpu_seconds:.1f} CPU seconds"),
        ("bound", kind_text(plan.topology, plan.collective, plan.headline.bound_kind)),
    ]
    if not all(one.simulated and one.runner_up_simulated for one in plan.points):
        facts.append(("~", "estimated from simulations of other sizes"))
    title = f"plan of {plan.collective} on {plan.topology.name}"
    return html_card(title, facts, columns=columns, rows=rows)
