"""Which hosts share a bottleneck on their way out: pure, from rounds alone.

In a round in which no host sends twice or receives twice, two hosts behind one switch get all that their own
cables allow. A pair that gets less crosses something that others use too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.probing.measurements import FABRIC, Estimate, plateau

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft.probing.measurements import Flow, Measurements

SLOWED: Final = 0.8
"""Part of what two hosts' own cables allow, below which a flow was held up by something else."""

_APART: Final = 0.15
"""Part of the samples of two groups that must be slowed for them to be two."""

_MOVES: Final = 10
_MORE: Final = 1.1
_MATCHINGS: Final = ("pairs", "permutations")


def own_rates(measurements: Measurements) -> tuple[list[Estimate], list[Estimate]]:
    """What each host can send and receive at most, over all rounds."""
    hosts = range(len(measurements.hosts))
    out: list[list[float]] = [[] for _ in hosts]
    into: list[list[float]] = [[] for _ in hosts]
    for one in measurements.rounds:
        for host in hosts:
            if sent := one.total(sources=[host]):
                out[host].append(sent)
            if received := one.total(targets=[host]):
                into[host].append(received)
    return [plateau(samples) for samples in out], [plateau(samples) for samples in into]


def doubtful_fans(measurements: Measurements) -> list[int]:
    """Hosts that got more through with all others at once than ever else: seen once, it may be a mistake."""
    out, into = own_rates(measurements)
    found = set()
    for one in measurements.rounds:
        if one.kind != "fans":
            continue
        for host in range(len(measurements.hosts)):
            sent, received = one.total(sources=[host]), one.total(targets=[host])
            if sent > _MORE * out[host].value or received > _MORE * into[host].value:
                found.add(host)
    return sorted(found)


def doubtful_cables(measurements: Measurements) -> set[Flow]:
    """Flows over cables that were once faster than they otherwise are: one of the rates is a mistake."""
    flows = {flow for one in measurements.rounds for flow in one.rates if flow.cable != FABRIC}
    rates = {flow: measurements.rates(flow) for flow in flows}
    return {flow for flow, samples in rates.items() if max(samples) > _MORE * plateau(samples).value}


def find_groups(measurements: Measurements) -> list[tuple[int, ...]]:
    """Hosts that do not slow each other, together; one group if nobody is slowed at all.

    Groups are merged as long as hardly any flow between two of them was slowed. First those go together that
    are slowed alike on their way to everybody else: two hosts of different groups may have been lucky with
    each other, but not with all. In the end each host moves to where it is slowed least.
    """
    apart = _judge_pairs(measurements, _slowed_part)
    groups = _merge(apart, _APART)
    for _ in range(_MOVES):
        moved = _move(apart, groups)
        if moved == groups:
            break
        groups = moved
    return sorted(tuple(sorted(group)) for group in groups)


def order_by_likeness(measurements: Measurements) -> list[int]:
    """Hosts in an order in which those that seem to belong together are neighbours."""
    (order,) = _merge(_judge_pairs(measurements, _missing_part), 1.0)
    return order


def _merge(apart: NDArray[np.float64], bound: float) -> list[list[int]]:
    unlike = np.abs(apart[:, None, :] - apart[None, :, :]).mean(axis=2)
    groups = [[host] for host in range(len(apart))]
    while True:
        candidates = []
        for b in range(len(groups)):
            for a in range(b):
                block = np.ix_(groups[a], groups[b])
                if (slowed := float(apart[block].mean())) <= bound:
                    candidates.append((slowed + float(unlike[block].mean()), a, b))
        if not candidates:
            return groups
        _, a, b = min(candidates)
        groups[a] += groups.pop(b)


def _move(apart: NDArray[np.float64], groups: list[list[int]]) -> list[list[int]]:
    moved: list[list[int]] = [[] for _ in groups]
    for number, group in enumerate(groups):
        for host in group:
            slowed = [
                float(apart[host, others].mean()) if (others := [h for h in other if h != host]) else _APART
                for other in groups
            ]
            best = int(np.argmin(slowed))
            moved[best if slowed[best] < slowed[number] else number].append(host)
    return [group for group in moved if group]


def _judge_pairs(measurements: Measurements, judge: Callable[[list[float]], float]) -> NDArray[np.float64]:
    """For each two hosts, what flows between them got of what their own cables allow comes to."""
    out, into = own_rates(measurements)
    ratios: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one in measurements.rounds:
        if one.kind not in _MATCHINGS:
            continue
        for flow, rate in one.rates.items():
            if flow.cable == FABRIC:
                low, high = sorted(flow[:2])
                ratios[low, high].append(rate / min(out[flow.src].value, into[flow.dst].value))
    table = np.zeros((len(measurements.hosts), len(measurements.hosts)))
    for (low, high), found in ratios.items():
        table[low, high] = table[high, low] = judge(found)
    return table


def _slowed_part(ratios: list[float]) -> float:
    """Which part of the flows was slowed; one of them is bad luck."""
    slowed = sum(ratio < SLOWED for ratio in ratios)
    return max(0, slowed - 1) / max(1, len(ratios) - 1)


def _missing_part(ratios: list[float]) -> float:
    """How much the flows missed on average: a hint, where none missed much."""
    return sum(max(0.0, 1 - ratio) for ratio in ratios) / len(ratios)
