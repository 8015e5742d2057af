"""Sections of a report from the documents that commands print with ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.errors import InputError
from weft.planning.plan_text import human_size
from weft.reporting.busiest_links import busiest_section
from weft.reporting.fabric_picture import LinkUse, fabric_section
from weft.reporting.form_numbers import find_quantity
from weft.reporting.path_words import path_sections
from weft.reporting.section_kinds import (
    Section,
    bars_section,
    chart_section,
    facts_section,
    table_section,
    words_section,
)
from weft.topology.spec_parser import is_spec, parse_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.reporting.result_forms import (
        BenchedForm,
        ClaimsForm,
        ComparedForm,
        LabForm,
        PacketsForm,
        PaperForm,
        PlanForm,
        PlanPointRow,
        RefusedRow,
        SimulatedForm,
        SweptForm,
        TrainedForm,
    )
    from weft.topology import Topology

_VERDICTS: Final = {
    "within_10": "within 10 %",
    "within_25": "within 25 %",
    "not_reproduced": "not reproduced",
    "no_number": "no number",
}


def named_topology(name: str) -> Topology | None:
    """The topology that a result names, where the name alone says which it is; never one of a file."""
    if not is_spec(name):
        return None
    try:
        return parse_spec(name)
    except InputError:
        return None


def describe_segment(segment_bytes: int | None) -> str:
    """How messages were cut, in as many digits as a plan shows on a terminal."""
    return "whole messages" if segment_bytes is None else human_size(segment_bytes)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else units.human_seconds(seconds)


def comparison_sections(found: Sequence[ComparedForm]) -> list[Section]:
    """Algorithms beside each other and beside the bound: a chart over sizes, or bars for one size."""
    found = sorted(found, key=lambda one: one.size_bytes)
    sections: list[Section] = []
    if len(found) > 1:
        labels = dict.fromkeys(row.label or row.algorithm for one in found for row in one.results)
        series = {label: [_seconds_of(one, label) for one in found] for label in labels}
        sizes, bounds = [one.size_bytes for one in found], [one.bound_seconds for one in found]
        what = f"{found[0].collective} on {found[0].topology}"
        sections.append(chart_section(f"Times against size: {what}", sizes, series, bounds))
    for one in found:
        what = f"{one.collective} of {units.format_size(one.size_bytes)}"
        if len(found) == 1:
            bars = [(row.label or row.algorithm, {"time": row.seconds}) for row in one.results if row.seconds]
            sections.append(bars_section(f"Times: {what}", bars, bound=one.bound_seconds))
        rows = [
            (
                row.label or row.algorithm,
                _time(row.seconds),
                _percent(row.fraction_of_bound),
                "-" if row.algbw_GBps is None else f"{row.algbw_GBps:.2f}",
                "-" if row.busbw_GBps is None else f"{row.busbw_GBps:.2f}",
                f"{row.steps:,}",
                f"{row.transfers:,}",
                describe_segment(row.segment_bytes),
                "yes" if row.verified else "NO",
            )
            for row in one.results
        ]
        heads = ("algorithm", "time", "of bound", "algbw GB/s", "busbw GB/s", "steps", "transfers", "segment",
                 "verified")  # fmt: skip
        kind = "; ".join(text for text in (one.bound_kind, one.bound_condition) if text)
        why = one.bound_explanation.rstrip(".")
        bound = f"Bound: {units.human_seconds(one.bound_seconds)} ({kind}). {why[:1].upper()}{why[1:]}."
        expected = f" Estimate: {one.nccl_estimate.text}." if one.nccl_estimate is not None else ""
        note = f"{one.topology}. {bound}{expected}"
        sections.append(table_section(f"Algorithms: {what}", heads, rows, note=note))
    return [*sections, *_skipped(found[-1].skipped)]


def _seconds_of(one: ComparedForm, label: str) -> float | None:
    return next((row.seconds for row in one.results if (row.label or row.algorithm) == label), None)


def _skipped(refused: Sequence[RefusedRow]) -> list[Section]:
    if not refused:
        return []
    return [
        table_section("Left out", ("algorithm", "reason"), [(r.algorithm, r.reason) for r in refused], left=2)
    ]


def _runner_up(point: PlanPointRow) -> str:
    sign = "" if point.runner_up_simulated else "~"
    return "-" if point.runner_up is None else f"{point.runner_up}, {sign}{_time(point.runner_up_seconds)}"


def plan_sections(plan: PlanForm) -> list[Section]:
    """What a plan chooses at each size, beside the bound and the runner-up."""
    points = sorted(plan.points, key=lambda point: point.size_bytes)
    sizes = [point.size_bytes for point in points]
    series: dict[str, list[float | None]] = {"plan": [point.seconds for point in points]}
    if any(point.runner_up_seconds for point in points):
        series["runner-up"] = [point.runner_up_seconds for point in points]
    bounds = [point.bound_seconds for point in points]
    what = f"{plan.collective} on {plan.topology}"
    rows = [
        (
            units.format_size(point.size_bytes),
            f"{point.algorithm} ({point.variant})" if point.variant else point.algorithm,
            describe_segment(point.segment_bytes),
            _time(point.seconds),
            _percent(point.fraction_of_bound),
            f"{point.busiest_link}, {_percent(point.busy)}",
            _runner_up(point),
        )
        for point in points
    ]
    heads = ("size", "algorithm", "segment", "time", "of bound", "busiest link", "runner-up")
    charts = [chart_section(f"Times against size: {what}", sizes, series, bounds)] if len(points) > 1 else []
    conditions = dict.fromkeys(point.bound_condition for point in points if point.bound_condition)
    note = "".join(f"The bound holds where {condition}." for condition in conditions)
    return [*charts, table_section(f"Plan: {what}", heads, rows, note=note, left=3), *_skipped(plan.skipped)]


def simulation_sections(found: SimulatedForm, *, draw: bool = True) -> list[Section]:
    """Times of one run, how busy the links were, and the critical path."""
    facts: list[tuple[str, object]] = [
        ("time", units.human_seconds(found.seconds)),
        ("bound", _describe_bound(found)),
        ("of bound", _percent(found.fraction_of_bound)),
        ("algbw", f"{found.algbw_GBps:.2f} GB/s"),
        ("busbw", f"{found.busbw_GBps:.2f} GB/s"),
        ("schedule", f"{units.count(found.steps, 'step')}, {units.count(found.transfers, 'transfer')}"),
        ("segments", describe_segment(found.segment_bytes)),
    ]
    if found.verified is not None:
        facts.append(("verified", "yes" if found.verified else "NO: the verifier rejects it"))
    title = (
        f"{found.algorithm} {found.collective} of {units.format_size(found.size_bytes)} on {found.topology}"
    )
    sections = [facts_section(title, facts)]
    if found.bound_seconds and found.seconds:
        bars = [(found.algorithm, {"time": found.seconds})]
        sections.append(bars_section("Time beside the bound", bars, bound=found.bound_seconds))
    topology = None
    if draw:
        topology = _whose_links(found.topology, found.link_busy_ps)
        sections += _drawn(topology, found.algorithm, found.link_busy_ps, found.time_ps)
    return [*sections, *path_sections(found.critical_path, found.time_ps, topology)]


def _describe_bound(found: SimulatedForm) -> str:
    """The bound of a run: its time, kind and condition, and why nothing can beat it."""
    if found.bound_seconds is None:
        return "-"
    kind = "; ".join(text for text in (found.bound_kind, found.bound_condition) if text)
    why = f"; {found.bound_explanation}" if found.bound_explanation else ""
    return _time(found.bound_seconds) + (f" ({kind})" if kind else "") + why


def _whose_links(name: str, busy_ps: Sequence[int]) -> Topology | None:
    """The topology that a result names, if it has as many links as the result."""
    topology = named_topology(name)
    return None if topology is None or len(busy_ps) != topology.links else topology


def _drawn(topology: Topology | None, label: str, busy_ps: Sequence[int], time_ps: int) -> list[Section]:
    if topology is None or time_ps <= 0:
        return []
    shares = [busy / time_ps for busy in busy_ps]
    fabric = fabric_section(topology, [LinkUse(label, shares)], is_named=True)
    return [fabric, busiest_section(topology, shares, label)]


def packet_sections(found: PacketsForm, *, draw: bool = True) -> list[Section]:
    """Times of a run packet by packet."""
    title = f"{found.algorithm} {found.collective} of {units.format_size(found.size_bytes)}, packet by packet"
    facts: list[tuple[str, object]] = [
        ("topology", found.topology),
        ("time", f"{units.human_seconds(found.seconds)}, {found.cycles:,} cycles"),
        ("algbw", f"{found.algbw_GBps:.2f} GB/s"),
        ("hardware", found.hardware),
        ("flow control", f"{found.flow_control}; detail of {found.detail}s"),
        ("packets", f"{found.packets:,} of {found.messages:,} messages"),
        ("flits", f"{found.flits:,}; heads add {100 * found.head_overhead:.2f} %"),
    ]
    sections = [facts_section(title, facts)]
    if draw:
        topology = _whose_links(found.topology, found.link_busy_ps)
        sections += _drawn(topology, found.algorithm, found.link_busy_ps, found.time_ps)
    return sections


def training_sections(found: TrainedForm) -> list[Section]:
    """An iteration of training: what computes, what is exposed, and what no policy could beat."""
    algorithms = "; ".join(f"{name} by {', '.join(how)}" for name, how in found.algorithms.items())
    facts: list[tuple[str, object]] = [
        (
            "model",
            f"{found.model}, {found.layers:,} layers, {found.parameter_bytes / 2**20:,.1f} MiB of gradients",
        ),
        (
            "cluster",
            f"{found.topology}, {found.ranks:,} ranks, {found.batch:,} samples each on {found.device}",
        ),
        ("policy", found.policy),
        ("why", found.reason or "it was asked for"),
        ("endpoint", found.endpoint),
        ("schedules", algorithms or "none"),
        ("iteration", units.human_seconds(found.seconds)),
        ("samples", "-" if found.samples_per_s is None else f"{found.samples_per_s:,.0f} per second"),
        ("computing", units.human_seconds(found.computing_s)),
        ("exposed", f"{units.human_seconds(found.exposed_s)} of communication are not hidden by computing"),
        ("sending", f"{units.human_seconds(found.communication_s)} in all, seen from rank 0"),
    ]
    bars = [("this iteration", {"computing": found.computing_s, "exposed": found.exposed_s})]
    bars += [(name, {"at best": seconds}) for name, seconds in found.lines.items()]
    title = f"Training: {found.model} on {found.topology}"
    note = f"What is possible at best holds where {found.bound_condition}." if found.bound_condition else ""
    return [facts_section(title, facts), bars_section("Iteration beside what is possible", bars, note=note)]


def sweep_sections(found: SweptForm) -> list[Section]:
    """Training jobs of a sweep beside each other."""
    bars: list[tuple[str, dict[str, float | None]]] = []
    rows: list[tuple[str, ...]] = []
    for row in found.results:
        sweep = row.get("sweep")
        name = (
            ", ".join(f"{key} {value}" for key, value in sweep.items()) if isinstance(sweep, dict) else "job"
        )
        times = [find_quantity(row.get(key)) for key in ("seconds", "exposed_s", "computing_s")]
        if None in times:
            rows.append((name, str(row.get("error", "-")), "-", "-", "-", "-"))
            continue
        bars.append((name, {"computing": times[2], "exposed": times[1]}))
        rate = find_quantity(row.get("samples_per_s"))
        shown = "-" if rate is None else f"{rate:,.0f}"
        rows.append((name, str(row.get("policy", "-")), *map(_time, times), shown))
    heads = ("job", "policy", "iteration", "exposed", "computing", "samples/s")
    return [bars_section("Training jobs", bars), table_section("Sweep", heads, rows, left=2)]


def measured_seconds(contestant: dict[str, Any]) -> float | None:
    """Median of the measured times: in place where both were measured."""
    for place in ("in", "out"):
        series = contestant.get(place)
        if isinstance(series, dict) and (found := find_quantity(series.get("median_seconds"))) is not None:
            return found
    return None


def bench_sections(found: BenchedForm, predicted: dict[int, float], note: str = "") -> list[Section]:
    """Measured times against size; beside what was predicted, where there is a prediction."""
    rows = sorted(found.rows, key=lambda row: row.size_bytes)
    names = dict.fromkeys(name for row in rows for name in row.contestants)
    series: dict[str, list[float | None]] = {
        f"{name}, measured": [measured_seconds(row.contestants.get(name, {})) for row in rows]
        for name in names
    }
    if predicted:
        series["predicted"] = [predicted.get(row.size_bytes) for row in rows]
    bounds = [find_quantity((row.bound or {}).get("seconds")) for row in rows]
    collective = rows[0].collective if rows else "collective"
    title = "Predicted beside measured" if predicted else "Measured times against size"
    note = f"{found.ranks} ranks on {found.machine}; median of {found.rounds} rounds. {note}".strip()
    heads = ["size", *series, "bound"]
    table = [
        (
            units.format_size(row.size_bytes),
            *(_time(values[index]) for values in series.values()),
            _time(bounds[index]),
        )
        for index, row in enumerate(rows)
    ]
    sizes = [row.size_bytes for row in rows]
    return [
        chart_section(f"{title}: {collective}", sizes, series, bounds, note),
        table_section("Measured times", heads, table),
    ]


def lab_sections(found: LabForm) -> list[Section]:
    """Measured times on an emulated cluster beside the simulator's."""
    bars: list[tuple[str, dict[str, float | None]]] = [
        (row.name, {"measured": row.median_seconds, "predicted": row.predicted_seconds})
        for row in found.results
    ]
    rows = [
        (
            row.name,
            row.algorithm or "-",
            _time(row.median_seconds),
            _time(row.predicted_seconds),
            "-" if row.deviation is None else f"{100 * row.deviation:+.1f} %",
        )
        for row in found.results
    ]
    what = f"{units.format_size(found.size_bytes)} on {found.topology}, emulated"
    heads = ("runtime", "algorithm", "median", "predicted", "off")
    return [
        bars_section(f"Predicted beside measured: {what}", bars, note=f"Median of {found.rounds} rounds."),
        table_section("Runtimes", heads, rows, left=2),
    ]


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.4g}{unit}"


def claims_sections(found: ClaimsForm) -> list[Section]:
    """Claims of papers beside what came out."""
    rows = [
        (
            one.paper,
            one.claim,
            _VERDICTS.get(one.verdict, one.verdict),
            one.why,
            _number(one.paper_value),
            _number(one.ours),
            "-" if one.deviation is None else f"{round(100 * one.deviation):+d} %",
        )
        for one in found.claims
    ]
    counts: dict[str, int] = {}
    for one in found.claims:
        verdict = _VERDICTS.get(one.verdict, one.verdict)
        counts[verdict] = counts.get(verdict, 0) + 1
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    heads = ("paper", "claim", "verdict", "why", "paper's number", "ours", "deviation")
    note = f"{len(found.claims)} claims: {summary}. Numbers are in the unit that the claim names."
    return [table_section("Claims of papers", heads, rows, left=4, note=note)]


def paper_sections(found: PaperForm) -> list[Section]:
    """All rows of one paper's reproduction."""
    rows = [
        (
            one.claim,
            one.setup,
            one.why,
            _number(one.paper, one.unit),
            _number(one.ours, one.unit),
            "-" if one.deviation is None else f"{100 * one.deviation:+.1f} %",
        )
        for one in found.rows
    ]
    heads = ("claim", "set-up", "why", "paper's number", "ours", "deviation")
    return [
        words_section(found.title, [found.reference]),
        table_section(f"Claims: {found.paper}", heads, rows, left=3),
        words_section("Assumptions", found.assumptions),
    ]
