"""Sections of a report on what was checked: a schedule, the runtime, a job that failed, or a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.errors import name_ranks
from weft.reporting.section_kinds import Section, facts_section, table_section, words_section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.reporting.check_forms import (
        CheckedForm,
        CheckedPlanForm,
        ContentionForm,
        ExplainedForm,
        GrowthRow,
        ProbedForm,
        RankStateRow,
        SoakedForm,
        SoakFailureRow,
    )

_REPLAYED: Final = ("hazard", "semantics")
"""Checks of one replay, which ends at its first problem."""

_SECONDS: Final = ("seconds", "timeout")
"""Settings of a soak test in seconds."""

_KIB: Final = ("memory", "shared_memory")
"""What a soak test counts in KiB."""


def verdict_sections(found: CheckedForm) -> list[Section]:
    """Whether a schedule is correct, check by check, and where flows meet."""
    facts: list[tuple[str, object]] = [("verdict", "correct" if found.verified else "WRONG")]
    facts += [(check, _verdict(found, check)) for check in found.checks]
    size = f"{units.count(found.transfers, 'transfer')}, {units.count(found.steps, 'step')}"
    facts += [
        ("schedule", f"{size}, {units.count(found.chunks, 'chunk')}, {units.count(found.ranks, 'rank')}"),
        ("digest", found.digest),
    ]
    return [facts_section(f"Verified: {found.schedule}", facts), *_contention(found.contention)]


def _verdict(found: CheckedForm, check: str) -> str:
    problem = found.problem
    if problem is not None and problem.check == check:
        return problem.problem
    if problem is not None and problem.check in _REPLAYED:
        return "not decided: the replay ends at the first problem"
    if check == "deadlock" and found.slots is not None:
        return f"impossible with {units.count(found.slots, 'receive slot')} or more per connection"
    return "nothing found"


def _contention(found: ContentionForm | None) -> list[Section]:
    if found is None:
        return []
    if not found.worst:
        return [words_section("Where flows meet", ["No link carries more than one flow in any step."])]
    rows = [(one.link, f"{one.step:,}", f"{one.flows:,}") for one in found.worst]
    flows = f"Up to {units.count(found.max_flows, 'flow')} share a link"
    note = f"{flows}; in {units.count(found.contended_steps, 'step')} more than one does."
    return [table_section("Where flows meet", ("link", "step", "flows"), rows, note=note)]


def plan_verdict_sections(found: CheckedPlanForm) -> list[Section]:
    """Whether each schedule of a plan is correct."""
    rows = [
        (
            one.schedule,
            "yes" if one.verified else "NO",
            "-" if one.problem is None else f"{one.problem.check}: {one.problem.problem}",
            "-" if one.slots is None else f"{one.slots:,}",
            f"{one.transfers:,}",
            f"{one.steps:,}",
        )
        for one in found.schedules
    ]
    heads = ("schedule", "correct", "problem", "receive slots", "transfers", "steps")
    right = sum(one.verified for one in found.schedules)
    note = f"{right:,} of {units.count(len(rows), 'schedule')} are correct."
    return [table_section(f"Verified: {found.plan}", heads, rows, left=3, note=note)]


def soak_sections(found: SoakedForm) -> list[Section]:
    """What a soak test did, whether anything grew, and what failed."""
    checked = f"{found.checked_bytes / 2**20:,.0f} MiB of results compared"
    facts: list[tuple[str, object]] = [
        ("result", "no failure found" if found.failure is None else f"FAILED: {found.failure.kind}"),
        ("time", units.human_seconds(found.seconds)),
        ("done", f"{units.count(sum(found.operations.values()), 'operation')}, {checked}"),
        ("episodes", f"{found.episodes:,}, {units.count(found.joins, 'job')}"),
        ("kills", _kills(found)),
        ("settings", _settings(found.settings)),
    ]
    kinds = sorted(found.operations.items(), key=lambda item: -item[1])
    rows = [(kind, f"{number:,}") for kind, number in kinds]
    return [
        facts_section("Soak test", facts),
        *_soak_failure(found.failure, found.repeat),
        table_section("Operations", ("kind", "number"), rows),
        _growth(found.growth),
    ]


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings in words; those that were left open are left out."""
    shown = []
    for name, value in settings.items():
        if isinstance(value, bool):
            shown.append(f"{name} {'yes' if value else 'no'}")
        elif name in _SECONDS and isinstance(value, int | float):
            shown.append(f"{name} {value:g} s".replace("seconds ", "time "))
        elif value is not None:
            shown.append(f"{name} {value}")
    return ", ".join(shown)


def _kills(found: SoakedForm) -> str:
    if found.loss_median_seconds is None or found.loss_worst_seconds is None:
        return f"{found.kills:,}"
    median, worst = map(units.human_seconds, (found.loss_median_seconds, found.loss_worst_seconds))
    return f"{found.kills:,}; all other ranks named the right one, after {median} (median), {worst} (worst)"


def _soak_failure(failure: SoakFailureRow | None, repeat: str | None) -> list[Section]:
    if failure is None:
        return []
    paragraphs = [f"{failure.kind}: {failure.text}", *failure.findings]
    if repeat is not None:
        paragraphs.append(f"This repeats it: {repeat}")
    rows = [(rank, step, failure.said.get(rank, "said nothing")) for rank, step in failure.steps.items()]
    return [
        words_section("Failure", paragraphs),
        table_section("Ranks", ("rank", "was doing", "said"), rows, left=3),
    ]


def _growth(growth: Sequence[GrowthRow]) -> Section:
    rows = [
        (
            f"{one.what.replace('_', ' ')}{', KiB' if one.what in _KIB else ''}",
            f"{one.level:,.0f}" if one.judged or one.level else "-",
            f"{one.growth:+,.1f}" if one.judged else "-",
            f"{one.bound:,.0f}",
        )
        for one in growth
    ]
    short = "" if all(one.judged for one in growth) else "The test was too short to judge all of them. "
    note = f"{short}Growth is that over the second half of the life of a process, on average."
    return table_section("Growth of the processes", ("what", "level", "growth", "allowed"), rows, note=note)


def explained_sections(found: ExplainedForm) -> list[Section]:
    """Why a job failed or hangs: findings first, then where each rank was."""
    paragraphs = [*found.findings]
    if found.absent:
        paragraphs.append(f"No record: {name_ranks(found.absent)}.")
    paragraphs += [f"Earlier: {text}" for text in found.earlier]
    paragraphs += [f"Left out: {text}" for text in found.left_out]
    rows = [
        (
            str(one.rank),
            one.host,
            f"{one.collective} #{one.number}" if one.number else "none",
            one.state,
            one.failure or "-",
            "-" if one.waits_for is None else f"rank {one.waits_for}",
            "-" if one.step is None else str(one.step),
            units.human_seconds(one.since_s),
        )
        for one in _troubled_first(found.states)
    ]
    heads = ("rank", "host", "operation", "state", "failure", "waits for", "step", "for")
    note = f"Records of {len(found.states):,} of {units.count(len(found.ranks), 'rank')}."
    return [
        words_section(f"Job {found.job}", paragraphs),
        table_section("Ranks", heads, rows, left=6, note=note),
    ]


def _troubled_first(states: Sequence[RankStateRow]) -> list[RankStateRow]:
    """Ranks that neither failed nor wait come last, because a table has an end."""
    return sorted(states, key=lambda one: one.failure is None and one.waits_for is None)


def probe_sections(found: ProbedForm) -> list[Section]:
    """What was measured of each link, and which ones are slower than somebody said."""
    rows = [
        (
            one.link,
            units.human_bandwidth(one.bandwidth),
            "-" if one.spread is None else f"{100 * one.spread:.1f} %",
            f"{one.samples:,} of {one.seen:,}",
            units.human_seconds(one.latency_s),
        )
        for one in found.links
    ]
    heads = ("link", "speed", "spread", "samples", "latency")
    explained = (
        "" if found.explained is None else f"{found.explained:.0%} of them are as this topology predicts. "
    )
    # Inside one host there are no rounds between hosts: each rank's own speed is measured.
    measured = f"{units.count(len(found.rounds), 'round')} were measured. " if found.rounds else ""
    note = f"{measured}{explained}"
    sections = [
        *_claimed(found),
        table_section(f"Measured: {found.topology}", heads, rows, note=note.strip()),
    ]
    return [*sections, words_section("Assumed", found.notes)] if found.notes else sections


def _claimed(found: ProbedForm) -> list[Section]:
    """Links that are slower than claimed, where there is a claim."""
    if found.slow is None:
        return []
    rows = [
        (
            one.link,
            units.human_bandwidth(one.claimed),
            units.human_bandwidth(round(one.carried)),
            f"{100 * (1 - one.carried / max(one.claimed, 1)):.0f} %",
        )
        for one in found.slow
    ]
    judged = len(found.links) if found.judged is None else found.judged
    note = f"{len(rows):,} of {units.count(judged, 'link')} that could be judged are slower than claimed."
    return [
        table_section("Slower than claimed", ("link", "claimed", "carries", "slower by"), rows, note=note)
    ]
