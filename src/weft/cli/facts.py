"""What can be said about a cluster at a glance: its links, distances and cuts.

Distances and loads are those of the paths that the network itself takes. What would take seconds on a large
cluster is left out and said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

MOST_RANKS: Final = 1024
"""Beyond it, all pairs are too many to route for a summary."""


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Directed links of one kind and speed."""

    kind: str
    count: int
    bandwidth: int
    latency_ps: int


@dataclass(frozen=True, slots=True)
class Distances:
    """Paths between all pairs of ranks, as the network routes them.

    Parameters
    ----------
    hops, mean_hops, latency_ps
        Links of the longest path and of the average one, and the largest sum of latencies.
    pair_bandwidth
        Bytes per second for each pair when all ranks send to all others at once.
    busiest
        The link that limits this.
    """

    hops: int
    mean_hops: float
    latency_ps: int
    pair_bandwidth: float
    busiest: int


def link_classes(topology: Topology) -> list[LinkClass]:
    """Links by what they join and how fast they are, most numerous first."""
    switch_ends = (topology.link_src >= topology.ranks).astype(np.int64) + (
        topology.link_dst >= topology.ranks
    )
    table = np.stack([switch_ends, topology.bandwidth, topology.latency_ps], axis=1)
    rows, counts = np.unique(table, axis=0, return_counts=True)
    kinds = ("rank-rank", "rank-switch", "switch-switch")
    found = [LinkClass(kinds[r[0]], int(n), int(r[1]), int(r[2])) for r, n in zip(rows, counts, strict=True)]
    return sorted(found, key=lambda c: (-c.count, c.kind, -c.bandwidth))


def measure_distances(topology: Topology) -> Distances | None:
    """Route all pairs, or None where that would take too long."""
    ranks = topology.ranks
    if ranks > MOST_RANKS:
        return None
    src, dst = (ends.ravel().astype(np.int32) for ends in np.indices((ranks, ranks)))
    apart = src != dst
    offsets, links = topology.routes(src[apart], dst[apart])
    lengths = np.diff(offsets)
    latency = np.add.reduceat(topology.latency_ps[links], offsets[:-1])
    load = np.bincount(links, minlength=topology.links)
    seconds = load / topology.bandwidth
    busiest = int(seconds.argmax())
    return Distances(
        int(lengths.max()), float(lengths.mean()), int(latency.max()), 1 / float(seconds[busiest]), busiest
    )


def half_to_half(topology: Topology) -> int | None:
    """Bytes per second that the first half of the ranks can send to the second, by maximum flow.

    It is an upper bound of the bisection bandwidth, and equal to it on the usual networks. None where it
    would take too long, or where the middle would cut through a host.
    """
    half = topology.ranks // 2
    divided = any(min(group) < half <= max(group) for group in topology.groups)
    if topology.ranks > MOST_RANKS or divided:
        return None
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    nodes = topology.nodes
    unit = int(np.gcd.reduce(topology.bandwidth))
    capacity = topology.bandwidth // unit
    if int(capacity.sum()) > np.iinfo(np.int32).max:
        return None  # speeds too unlike for the whole-number flow of scipy
    first, second = np.arange(half), np.arange(half, topology.ranks)
    ends: list[NDArray[Any]] = [
        np.concatenate([topology.link_src, np.full(len(first), nodes), second]),
        np.concatenate([topology.link_dst, first, np.full(len(second), nodes + 1)]),
    ]
    weights = np.concatenate([capacity, np.full(topology.ranks, int(capacity.sum()))])
    matrix = csr_array((weights.astype(np.int32), (ends[0], ends[1])), shape=(nodes + 2, nodes + 2))
    flow = maximum_flow(matrix, nodes, nodes + 1)
    return int(flow.flow_value) * unit


def span(values: NDArray[np.int64], text: Any = str) -> str:
    """``"4"``, or ``"2 to 4"`` where they differ."""
    low, high = int(values.min()), int(values.max())
    return str(text(low)) if low == high else f"{text(low)} to {text(high)}"


def rank_degrees(topology: Topology) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Outgoing links and bytes per second of each rank."""
    count = np.bincount(topology.link_src, minlength=topology.nodes)[: topology.ranks]
    speed = np.zeros(topology.nodes, np.int64)
    np.add.at(speed, topology.link_src, topology.bandwidth)
    return count, speed[: topology.ranks]


def describe_group(members: tuple[int, ...]) -> str:
    """Ranks as runs.

    Examples
    --------
    >>> describe_group((0, 1, 2, 5, 7, 8))
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for rank in members:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return ", ".join("-".join(str(rank) for rank in run) for run in runs)
