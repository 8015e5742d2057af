"""The tightest sets and divisions of all, by maximum flows.

Named sets (`weft.bounds.node_sets`) are easy to understand but may miss the one that matters: two racks
behind a thin cable, a corner where links failed. These searches miss none. They count in whole numbers, so
that what they find is exact; only speeds that would not fit into 64 bits are rounded, upwards, which leaves
every bound valid. The C++ half is
``cpp/bounds/tight_cuts.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

    Mask = NDArray[np.bool_]
    Arguments = tuple[int, int, NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]

_MOST_WORK: Final = 1 << 25
"""Ranks times nodes and links up to which it is done: a torus of 2,500 ranks, a second at worst."""

_MOST_UNITS: Final = 1 << 61


class Division(NamedTuple):
    """All ranks divided into parts: which part each is in, and bytes per second that leave them together."""

    part: NDArray[np.int32]
    parts: int
    capacity: int


def affordable(topology: Topology) -> bool:
    """Whether the searches take less than about a second each."""
    return topology.ranks * (topology.nodes + topology.links) <= _MOST_WORK


def densest(topology: Topology, *, outward: bool) -> Mask:
    """Find the set with the most ranks per capacity leaving it (or entering), among those that miss a rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> densest(load_topology("mesh:2x3"), outward=True).astype(int).tolist()
    [0, 1, 1, 1, 1, 1]
    """
    inside: Mask = _core.densest_cut(*_graph(topology, outward)[0]).astype(bool)
    return inside


def thinnest(topology: Topology, root: int, *, outward: bool) -> Mask:
    """Find the set that the least capacity leaves (or enters), among those with the root that miss a rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> thinnest(load_topology("hosts:2,2@uplink=1GB/s"), 0, outward=True).astype(int).tolist()
    [1, 1, 0, 0, 1, 0, 1]
    """
    inside: Mask = _core.thinnest_cut(*_graph(topology, outward)[0], root).astype(bool)
    return inside


def strongest(topology: Topology, *, outward: bool) -> Division:
    """Find the division of all ranks with the largest (parts - 1) / capacity leaving (or entering) the parts.

    Each part takes the switches along that suit it best; parts may share them.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> strongest(load_topology("hosts:2,3,1@bw=10GB/s,uplink=1GB/s"), outward=True)
    Division(part=array([0, 0, 1, 1, 1, 2], dtype=int32), parts=3, capacity=3000000000)

    Notes
    -----
    Minimises the sum of a submodular function over all divisions with Edmonds' greedy algorithm, a maximum
    flow per rank, inside Newton steps on the ratio.
    """
    arguments, unit = _graph(topology, outward)
    part, parts, capacity = _core.strongest_partition(*arguments)
    return Division(part, parts, capacity * unit)


def _graph(topology: Topology, outward: bool) -> tuple[Arguments, int]:
    """Arguments of a search, links turned round where entering counts, and bytes per second of a unit."""
    src, dst = topology.link_src, topology.link_dst
    if not outward:
        src, dst = dst, src
    together = (topology.ranks + 1) * sum(topology.bandwidth.tolist())
    unit = max(int(np.gcd.reduce(topology.bandwidth)), -(-together // _MOST_UNITS))
    capacity = -(-topology.bandwidth // unit)
    return (topology.nodes, topology.ranks, src, dst, capacity), unit
