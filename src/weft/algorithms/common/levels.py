"""The levels of a cluster: ranks in hosts, hosts in racks, racks in the whole.

Hosts (or leaf switches) come from `Topology.groups`. Further levels, above and inside, are read off the
network itself: things that are at most d links apart form a level if being so near is mutual, that is, if
they fall into classes. On a tree of switches that finds every switch; on a grid it finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.ring_orders import hop_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from weft.topology import Topology

_MOST_COMPARED: Final = 512
"""Groups, or ranks of a group, up to which distances between all of them are looked at."""


@dataclass(frozen=True)
class ClusterPart:
    """A part of the cluster that is made of smaller parts; a rank is a group without any.

    Parameters
    ----------
    ranks
        All ranks in it.
    parts
        What it is made of, at least two; empty for a single rank.
    """

    ranks: tuple[int, ...]
    parts: tuple[ClusterPart, ...] = ()

    @cached_property
    def height(self) -> int:
        """Levels below this one."""
        return 1 + max(part.height for part in self.parts) if self.parts else 0

    def walk(self) -> Iterator[ClusterPart]:
        """Every group in it that has parts, inner ones first, itself last."""
        for part in self.parts:
            yield from part.walk()
        if self.parts:
            yield self


def flat(order: Sequence[int]) -> ClusterPart:
    """All ranks as equals, in some order."""
    return _join([ClusterPart((int(rank),)) for rank in order])


def two_levels(topology: Topology) -> ClusterPart:
    """Ranks in their groups, and all groups as equals.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> two_levels(load_topology("fattree:3,2,2")).parts[1].ranks
    (2, 3)
    """
    return _join([flat(group) for group in topology.groups])


def find_levels(topology: Topology) -> ClusterPart:
    """Find all levels of a cluster.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> cluster = find_levels(load_topology("hosts:3,2"))
    >>> cluster.height, [part.ranks for part in cluster.parts]
    (2, [(0, 1, 2), (3, 4)])
    >>> find_levels(load_topology("torus:4x4")).height
    1
    """
    if not topology.groups:
        return _nest(topology, [ClusterPart((rank,)) for rank in range(topology.ranks)])
    members = [_nest(topology, [ClusterPart((rank,)) for rank in group]) for group in topology.groups]
    return _nest(topology, members)


def _join(parts: Sequence[ClusterPart]) -> ClusterPart:
    if len(parts) == 1:
        return parts[0]
    return ClusterPart(tuple(rank for part in parts for rank in part.ranks), tuple(parts))


def _nest(topology: Topology, items: list[ClusterPart]) -> ClusterPart:
    """Put things into classes of ever larger distance, as long as distances have classes."""
    if 2 < len(items) <= _MOST_COMPARED:
        links = hop_lengths(topology, [item.ranks[0] for item in items], duplex=True)
        for limit in np.unique(links)[1:-1].tolist():
            near = links <= limit
            if bool((near[near.argmax(axis=1)] == near).all()):
                return _nest(topology, [_join(part) for part in _classes(items, near)])
    return _join(items)


def _classes(items: list[ClusterPart], near: NDArray[np.bool_]) -> list[list[ClusterPart]]:
    first = near.argmax(axis=1).tolist()
    return [
        [item for item, other in zip(items, first, strict=True) if other == head]
        for head in dict.fromkeys(first)
    ]
