"""Claims of FlexReduce's abstract beside what was simulated."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Final

from weft import units
from weft.papers.claims import factor_row, percent_row
from weft.papers.flexreduce.baselines import CONVENTIONAL, FLEX
from weft.papers.flexreduce.clusters import ASYMMETRIC, SYMMETRIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.papers.claims import ClaimRow
    from weft.papers.flexreduce.clusters import Scenario, Study
    from weft.papers.flexreduce.timing import TimingCase

ALIKE: Final = 0.01
"""Times within this of each other count as equal."""

_BEATS: Final = "beats conventional algorithms on asymmetric structures"
_EQUALS: Final = "equal or better on symmetric structures"
_WELL_CHOSEN: Final = 1.02
"""How many times as long as the best of its own plans a chosen one may take."""

_NEAR: Final = 0.95
"""Share of the bound from which on there is next to nothing left to gain."""

Case = tuple["Scenario", str, list["TimingCase"]]
"""A cluster, its sort of hosts, and its points by size."""

Draws = list[tuple["TimingCase", bool]]
"""Points of a study, each with whether the cluster is symmetric."""


def case_rows(cases: Sequence[Case]) -> Iterator[ClaimRow]:
    """One row for every cluster: asymmetric ones first, then symmetric ones."""
    for scenario, inside, points in sorted(cases, key=lambda case: case[0].kind == SYMMETRIC):
        gains = [point.speedup for point in points]
        sizes = ", ".join(units.format_size(point.size_bytes) for point in points)
        even = scenario.kind == SYMMETRIC
        yield factor_row(
            f"{_EQUALS if even else _BEATS}: {scenario.name}, {inside}",
            f"FlexReduce as it comes over the fastest of {len(CONVENTIONAL)} conventional ones, "
            f"{'the least' if even else 'mean'} of {sizes}",
            min(gains) if even else geometric_mean(gains),
            f"{'; '.join(map(_explain, points))}{_losses(points)}",
        )


def summary_rows(cases: Sequence[Case]) -> Iterator[ClaimRow]:
    """Make the rows over all clusters together."""
    for kinds, claim in ((ASYMMETRIC, _BEATS), ((SYMMETRIC,), _EQUALS)):
        mine = [case for case in cases if case[0].kind in kinds]
        if mine:
            name = "flexreduce-asymmetric" if kinds == ASYMMETRIC else "flexreduce-symmetric"
            yield from _overall(claim, mine, strictly=kinds == ASYMMETRIC, claim_id=name)
    for kind in ASYMMETRIC:
        last = [found[-1] for scenario, _, found in cases if scenario.kind == kind]
        if last:
            yield _balancing(kind, last)
    yield _yardstick([found[-1] for _, _, found in cases])


def _overall(claim: str, cases: Sequence[Case], *, strictly: bool, claim_id: str) -> Iterator[ClaimRow]:
    """How often and on average as it comes, and how often with the best of its plans."""
    named = [
        (f"{scenario.name}, {inside} at {units.format_size(point.size_bytes)}", point)
        for scenario, inside, points in cases
        for point in points
    ]
    few = f"{len(named)} pairs of cluster and size, FlexReduce as it comes"
    gains = {name: point.speedup for name, point in named}
    yield _share(claim, few, gains, strictly=strictly, claim_id=claim_id)
    most = max(gains, key=gains.__getitem__)
    yield factor_row(
        f"{claim}: on average",
        f"{few}; over the fastest of {len(CONVENTIONAL)} conventional ones",
        geometric_mean(gains.values()),
        f"{_over_each([point for _, point in named])}; at most {gains[most]:.2f}x, on {most}",
    )
    yield _share(
        f"{claim}, with the best of all plans of FlexReduce",
        f"{len(named)} pairs of cluster and size",
        {name: point.best_plan_speedup for name, point in named},
        strictly=strictly,
    )
    yield _choice(
        claim, f"{len(named)} pairs of cluster and size", {name: point.choice for name, point in named}
    )


def _choice(claim: str, setup: str, shares: Mapping[str, float]) -> ClaimRow:
    """How good the plan is that FlexReduce chooses for a size, beside the best of its own."""
    worst = min(shares, key=shares.__getitem__)
    late = sum(share < 1 / _WELL_CHOSEN for share in shares.values())
    return percent_row(
        f"{claim}: its choice among its own plans",
        f"{setup}; the time of the best of all its plans over that of the chosen one, mean",
        fmean(shares.values()),
        f"the least is {shares[worst]:.1%}, on {worst}; it takes more than {_WELL_CHOSEN - 1:.0%} "
        f"longer than the best of its own in {late}",
    )


def draw_rows(study: Study, draws: Draws) -> Iterator[ClaimRow]:
    """Wins, mean and most of what the cloud handed out."""
    points = [point for point, _ in draws]
    gains = {f"draw {number}": point.speedup for number, point in enumerate(points)}
    even = sum(symmetric for _, symmetric in draws)
    size = units.format_size(points[0].size_bytes)
    setup = f"{len(draws)} draws of the cloud, {size}, FlexReduce as it comes"
    claim = f"beats others where GPUs are spread unevenly: {study.name}"
    reached = fmean(point.fraction(point.best_conventional) for point in points)
    remark = (
        f"of the bound it reaches {fmean(point.fraction(FLEX) for point in points):.1%} on average, the "
        f"fastest conventional one {reached:.1%}; {even} of the draws are symmetric"
    )
    yield _share(claim, setup, gains, strictly=True, remark=remark)
    worth = geometric_mean([point.balance_gain for point in points])
    yield factor_row(
        f"{claim}: on average",
        f"{setup}; over the fastest of {len(CONVENTIONAL)} conventional ones",
        geometric_mean(gains.values()),
        f"{_over_each(points)}; {worth:.2f}x over equal shares",
    )
    most = max(points, key=lambda point: point.speedup)
    yield factor_row(
        f"{claim}: at most",
        f"{size} on {most.topology}",
        most.speedup,
        f"over {most.best_conventional}, which reaches "
        f"{most.fraction(most.best_conventional):.1%} of the bound",
    )


def _over_each(points: Sequence[TimingCase]) -> str:
    """Mean over each conventional one, where it applies."""
    some = [name for name in CONVENTIONAL if any(name in point.seconds for point in points)]
    return ", ".join(f"{_mean_over(points, name):.2f}x over {name}" for name in some)


def _mean_over(points: Sequence[TimingCase], name: str) -> float:
    return geometric_mean([point.over(name) for point in points if name in point.seconds])


def _share(
    claim: str,
    setup: str,
    gains: Mapping[str, float],
    *,
    strictly: bool,
    remark: str = "",
    claim_id: str = "",
) -> ClaimRow:
    """Share of cases in which FlexReduce is faster, or not slower."""
    faster = sum(gain > 1 + ALIKE for gain in gains.values())
    slower = sum(gain < 1 - ALIKE for gain in gains.values())
    alike = len(gains) - faster - slower
    worst = min(gains, key=gains.__getitem__)
    return percent_row(
        f"{claim}: how often",
        f"{setup}; {'faster' if strictly else 'not slower'} than the fastest conventional one by more than "
        f"{ALIKE:.0%}",
        (faster if strictly else faster + alike) / len(gains),
        f"{faster} are faster, {alike} within {ALIKE:.0%} and {slower} slower, and the least is "
        f"{gains[worst]:.3f}x, on {worst}{'; ' if remark else ''}{remark}",
        claim_id,
    )


def _balancing(kind: str, points: Sequence[TimingCase]) -> ClaimRow:
    """What it is worth that hosts keep shares by what their NICs carry."""
    gains = [point.balance_gain for point in points]
    why = "hosts with equal NICs keep equal shares, of which GPUs of small hosts own more, either way"
    if max(gains) > 1 + ALIKE:
        why = "with equal shares a slow NIC, or a host with few, carries as much as the others"
    return factor_row(
        f"what it is worth to balance shares: {kind}",
        f"FlexReduce as it comes over the same with equal shares for hosts, mean of {len(points)} clusters "
        f"at {units.format_size(points[0].size_bytes)}",
        geometric_mean(gains),
        f"{min(gains):.2f}x to {max(gains):.2f}x; {why}",
    )


def _yardstick(points: Sequence[TimingCase]) -> ClaimRow:
    """How near to the proven limit FlexReduce is, and how near that is to what can be had."""
    apart = max(point.packed_s / point.bound_s - 1 for point in points)
    worst = min(points, key=lambda point: point.fraction(FLEX))
    bests = Counter(point.best_conventional for point in points)
    return percent_row(
        "how near the certified optimum",
        f"{len(points)} clusters at {units.format_size(points[0].size_bytes)}, mean share of the bound",
        fmean(point.fraction(FLEX) for point in points),
        f"the least is {worst.fraction(FLEX):.1%}, on {worst.topology}; the fastest conventional one "
        f"reaches {fmean(point.fraction(point.best_conventional) for point in points):.1%} "
        f"({', '.join(f'{name} {count} times' for name, count in bests.most_common())}); forest's packing of "
        f"trees takes at most {apart:.2%} more than the bound",
    )


def _explain(point: TimingCase) -> str:
    return (
        f"{units.format_size(point.size_bytes)} {point.speedup:.2f}x over {point.best_conventional} "
        f"({point.fraction(FLEX):.0%} and {point.fraction(point.best_conventional):.0%} of the bound)"
    )


def _losses(points: Sequence[TimingCase]) -> str:
    """Why it is not faster, where it is not."""
    slower = [point for point in points if point.speedup < 1 - ALIKE]
    if slower:
        where = ", ".join(units.format_size(point.size_bytes) for point in slower)
        filling = points[-1].speedup >= 1 - ALIKE
        reason = (
            "filling its pipeline is not hidden behind so little data" if filling else "its plan is worse"
        )
        return f"; slower at {where}, where {slower[0].best_conventional} is nearer the bound: {reason}"
    last = points[-1]
    if last.speedup <= 1 + ALIKE and last.fraction(last.best_conventional) >= _NEAR:
        return f"; at {units.format_size(last.size_bytes)} {last.best_conventional} leaves nothing to gain"
    return ""
