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
    from numpy.typing import NDArray

    from weft.probing.measurements import Measurements

SLOWED: Final = 0.8
"""Part of what two hosts' own cables allow, below which a flow was held up by something else."""

_APART: Final = 0.15
"""Part of the samples of two groups that must be slowed for them to be two."""

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


def find_groups(measurements: Measurements) -> list[tuple[int, ...]]:
    """Hosts that do not slow each other, together; one group if nobody is slowed at all.

    Groups are merged as long as hardly any flow between two of them was slowed, the closest first.
    """
    hosts = len(measurements.hosts)
    apart = _slowed_part(measurements)
    groups = [[host] for host in range(hosts)]
    while len(groups) > 1:
        distance, a, b = min(
            (float(apart[np.ix_(groups[a], groups[b])].mean()), a, b)
            for b in range(len(groups))
            for a in range(b)
        )
        if distance > _APART:
            break
        groups[a] += groups.pop(b)
    return sorted(tuple(sorted(group)) for group in groups)


def _slowed_part(measurements: Measurements) -> NDArray[np.float64]:
    """For each two hosts, which part of the flows between them was slowed."""
    out, into = own_rates(measurements)
    samples: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for one in measurements.rounds:
        if one.kind not in _MATCHINGS:
            continue
        for flow, rate in one.rates.items():
            if flow.cable == FABRIC:
                allowed = min(out[flow.src].value, into[flow.dst].value)
                low, high = sorted(flow[:2])
                samples[low, high].append(rate < SLOWED * allowed)
    apart = np.zeros((len(measurements.hosts),) * 2)
    for (low, high), slowed in samples.items():
        apart[low, high] = apart[high, low] = np.mean(slowed)
    return apart
