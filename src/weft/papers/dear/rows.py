"""Rows of DeAR's reproduction, made of what was computed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.papers.claims import factor_row, percent_row
from weft.papers.dear.cells import FUSED, PLAIN, UNFUSED
from weft.papers.dear.forms import largest_error
from weft.papers.dear.fusion_searches import within_bounds
from weft.papers.dear.rivals import rival_rows
from weft.papers.dear.setup import NETWORKS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.papers.claims import ClaimRow
    from weft.papers.dear.cells import Cell
    from weft.papers.dear.setup import TestbedNetwork

_SEARCHES: Final = {
    "bounded": "our bounded search",
    "bounded, misjudged": "our bounded search, from a model whose layers' times are off by up to a third,",
    "bayesian": "the paper's Bayesian search",
}


_COSTS: Final = {"simulated": "simulated rings", "authors": "lines of the authors' code"}


def network_rows(network: TestbedNetwork, kinds: Sequence[str], cells: Sequence[Cell]) -> Iterator[ClaimRow]:
    """Give the abstract's claim for a network in each reading; that with simulated rings counts."""
    by_kind = [
        _abstract(
            network,
            [cell for cell in cells if cell.setting == f"{network.name}, {kind}"],
            f"{WORKERS} workers, {_COSTS[kind]}",
            network.claim_id if kind == "simulated" else "",
        )
        for kind in kinds
    ]
    for reading in zip(*by_kind, strict=True):
        yield from reading


def each_rival(kinds: Sequence[str], cells: Sequence[Cell]) -> Iterator[ClaimRow]:
    """Give DeAR against each rival at its own settings, on the slow network."""
    by_kind = [
        rival_rows(
            NETWORKS[0],
            [cell for cell in cells if cell.setting == f"{NETWORKS[0].name}, {kind}"],
            f"{WORKERS} workers, {_COSTS[kind]}",
        )
        for kind in kinds
    ]
    for rows_of_rival in zip(*by_kind, strict=True):
        yield from rows_of_rival


def model_rows(cells: Sequence[Cell]) -> Iterator[ClaimRow]:
    """Give a row for each model on each network."""
    yield from (_model(cell) for cell in cells)


def aside_rows(
    cells: Sequence[Cell],
    points: Sequence[dict[str, float]],
    startup: dict[str, Any],
    checked: Sequence[dict[str, Any]],
) -> Iterator[ClaimRow]:
    """Give rows of closed forms, searches, latency, and the check."""
    yield from _forms(points)
    yield from _searches(cells)
    yield from _latency(startup)
    yield _check(checked)


def _abstract(
    network: TestbedNetwork, cells: Sequence[Cell], setup: str, claim_id: str
) -> Iterator[ClaimRow]:
    yield replace(_over_best(network, cells, setup), claim_id=claim_id)
    slowest = max(((cell.gain(name), cell, name) for cell in cells for name in FUSED), key=lambda one: one[0])
    yield percent_row(
        f"{network.title}: up to {network.claimed:g} % faster, taken as over any one of the others",
        f"{setup}; {slowest[1].model} against {slowest[2]}",
        slowest[0],
        f"the ideal lines allow {slowest[1].ideal_gain:.1%} here; what is more is how {slowest[2]} fuses",
        up_to=network.claimed,
    )
    best = max(cells, key=lambda cell: cell.gain_over_best(UNFUSED, "dear-unfused"))
    yield percent_row(
        f"{network.title}: up to {network.claimed:g} % faster, taken as without fusion on either side",
        f"{setup}; {best.model} against the better of {' and '.join(UNFUSED)}",
        best.gain_over_best(UNFUSED, "dear-unfused"),
        "without fusion start-up latencies dominate; DeAR pays them once per module, in two halves, the "
        "others once per tensor",
        up_to=network.claimed,
    )


def _over_best(network: TestbedNetwork, cells: Sequence[Cell], setup: str) -> ClaimRow:
    best = max(cells, key=lambda cell: cell.gain_over_best(FUSED))
    rival = min(FUSED, key=lambda name: best.seconds[name])
    each = ", ".join(f"{cell.model} {cell.gain_over_best(FUSED):+.1%}" for cell in cells)
    ideal = max(cell.ideal_gain for cell in cells)
    why = (
        f"the ideal lines allow at most {ideal:.1%} on these models, and 25 % on any whose backward pass is "
        "twice its forward pass"
    )
    if all(cell.all_reduce_s <= cell.backward_s for cell in cells):
        why = "each model's all-reduce is shorter than its backward pass, so that DeAR cannot win over WFBP"
    return percent_row(
        f"{network.title}: up to {network.claimed:g} % faster than the state of the art",
        f"{setup}; DeAR as published (10 Bayesian trials) against the best of {', '.join(FUSED)}: "
        f"{best.model}, {rival}; all models: {each}",
        best.gain_over_best(FUSED),
        why,
        up_to=network.claimed,
    )


def _model(cell: Cell) -> ClaimRow:
    others = [name for name in (*PLAIN, "wfbp-tuned") if not name.startswith("dear")]
    over = ", ".join(f"{name} {1 + cell.gain(name):.2f}x" for name in others)
    variants = ", ".join(
        f"{name.removeprefix('dear-')} {units.human_seconds(seconds)}"
        for name, seconds in cell.seconds.items()
        if name.startswith("dear-")
    )
    share = cell.reached
    if share is None:
        reached = "even a perfect DeAR gains nothing"
    elif share > 0:
        reached = f"{share:.0%} of the ideal gain of {cell.ideal_gain:.1%} is reached"
    else:
        reached = f"none of the ideal gain of {cell.ideal_gain:.1%} is reached"
    lines = ", ".join(
        f"{name} {units.human_seconds(cell.lines[name])}" for name in ("ideal-wfbp", "ideal-dear")
    )
    return factor_row(
        f"{cell.model}, {cell.setting}: DeAR over the best of {', '.join(FUSED)}",
        f"forward {units.human_seconds(cell.forward_s)}, backward "
        f"{units.human_seconds(cell.backward_s)}, all-reduce {units.human_seconds(cell.all_reduce_s)}",
        1 + cell.gain_over_best(FUSED),
        f"{cell.verdict}. Over {over}. {lines}: {reached}. DeAR {variants}",
    )


def _forms(points: Sequence[dict[str, float]]) -> Iterator[ClaimRow]:
    yield percent_row(
        "uniform layers take f + max(b, t_ar) under WFBP and max(f, t_ag) + max(b, t_rs) under DeAR",
        f"f = 1, b = 2, t_ar from {points[0]['ratio']:g} to {points[-1]['ratio']:g}; largest difference",
        largest_error(points),
        "the first layer's send cannot begin before its backward work, nor forward before its first gather",
    )
    peak = max(points, key=lambda point: point["gain"])
    yield factor_row(
        "scheduling alone is worth at most 1.25x where backward is twice forward, at t_ar = 4 f",
        f"simulated uniform layers; the largest gain is at t_ar = {peak['ratio']:g} f",
        peak["gain"],
        "our derivation, not the paper's; more than this is fusion, latency, or the other's implementation",
    )


def _searches(cells: Sequence[Cell]) -> Iterator[ClaimRow]:
    simulated = [cell for cell in cells if cell.setting.endswith("simulated")]
    for name, title in _SEARCHES.items():
        worst = max(simulated, key=lambda cell: float(cell.tuner["searches"][name]["distance"]))
        good = sum(within_bounds(cell.tuner, name) for cell in simulated)
        line = worst.tuner["searches"][name]
        yield percent_row(
            f"{title} ends within 2 % of the best of all fusions after at most 10 evaluations",
            f"{len(simulated)} pairs of model and network; the worst is {worst.model}, {worst.setting}",
            line["distance"],
            f"{good} of {len(simulated)} are within 2 %; evaluations until the first that is: "
            + "; ".join(_needed(network, simulated, name) for network in NETWORKS),
        )


def _needed(network: TestbedNetwork, cells: Sequence[Cell], search: str) -> str:
    counts = [
        str(cell.tuner["searches"][search]["needed"] or "never")
        for cell in cells
        if cell.setting.startswith(network.name)
    ]
    return f"{network.name} {', '.join(counts)}"


def _latency(startup: dict[str, Any]) -> Iterator[ClaimRow]:
    few, many = startup["workers"][0], startup["workers"][-1]
    small = startup["small_all_reduce_s"]
    yield factor_row(
        "start-up latency of an all-reduce grows with the number of workers",
        f"1 KiB over a ring on {startup['network']}, {many} workers over {few}",
        small[-1] / small[0],
        f"{units.human_seconds(small[0])} to {units.human_seconds(small[-1])}: a ring has 2 (P - 1) steps",
    )
    for name, seconds in startup["seconds"].items():
        yield factor_row(
            f"{name}: an iteration of {startup['model']} with more workers",
            f"{startup['network']}, {many} workers over {few}",
            seconds[-1] / seconds[0],
            f"{units.human_seconds(seconds[0])} to {units.human_seconds(seconds[-1])}",
        )


def _check(checked: Sequence[dict[str, Any]]) -> ClaimRow:
    worst = max(checked, key=lambda one: abs(one["difference"]))
    times = f"{units.human_seconds(worst['channel_s'])} and {units.human_seconds(worst['cluster_s'])}"
    return percent_row(
        "one channel with simulated costs takes as long as every rank and link simulated together",
        f"{len(checked)} cells; the worst is {worst['policy']}, {worst['model']}, "
        f"{worst['setting']}: {times}",
        abs(worst["difference"]),
        "costs are lines between simulated sizes, and ranks of a ring are not done at the same moment",
    )
