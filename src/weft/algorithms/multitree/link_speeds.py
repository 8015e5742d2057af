"""Which links MultiTree uses when they are not equally fast, and how many chunks each carries in a step.

A step is as long as one chunk takes at some unit of speed, and a link carries as many chunks in it as it is
units fast. With the slowest link as the unit every link serves, but one bad cable then stretches all steps;
with a faster unit, links below it are left out. A unit that is a fraction of a speed fits others better: of
10 and 25 GB/s, 5 GB/s wastes nothing. `ways_to_use` lists what is worth trying; the trees decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.errors import DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft.topology import Topology

_THRESHOLDS: Final = 8
"""So many speeds, those after the widest gaps, are tried as the slowest that serves."""

_FEW_THRESHOLDS: Final = 2
"""The same where a try takes long: enough to leave out what is broken."""

_FRACTIONS: Final = 4
"""The unit is at least the slowest speed divided by this."""

_WORTH: Final = 1.02
"""A finer unit must bring the worst-served rank this much more."""


class Usage(NamedTuple):
    """The links that serve, as a topology of their own, and what they carry.

    Parameters
    ----------
    topology
        With these links only.
    links
        Their numbers in the whole topology.
    capacity
        Chunks that each of them carries in one step.
    """

    topology: Topology
    links: NDArray[np.int32]
    capacity: NDArray[np.int32]

    @property
    def least_seconds(self) -> float:
        """Time below which no trees come: for the worst rank to take in a byte from every other."""
        return (self.topology.ranks - 1) / _least_ingress(self.topology, self.topology.bandwidth)


def use_all(topology: Topology) -> Usage:
    """Every link serves; the slowest carries one chunk in a step.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> use_all(load_topology("mesh:3@bw=10GB/s,back=25GB/s")).capacity.tolist()
    [1, 2, 1, 2]
    """
    every = np.arange(topology.links, dtype=np.int32)
    return Usage(topology, every, _capacity(topology, int(topology.bandwidth.min())))


def ways_to_use(topology: Topology, *, fine: bool = True) -> Iterator[Usage]:
    """Sets of links and units that may be best, from few links and coarse units to all links and fine units.

    Parameters
    ----------
    topology
        Any.
    fine
        Try more sets of links, and units that are fractions of a speed.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> for usage in ways_to_use(load_topology("torus:4x4@bw=10GB/s/25GB/s")):
    ...     print(len(usage.links), np.unique(usage.capacity))
    64 [1 2]
    64 [1 3]
    64 [2 5]
    """
    parts = []
    for threshold in _thresholds(topology, _THRESHOLDS if fine else _FEW_THRESHOLDS):
        links = np.flatnonzero(topology.bandwidth >= threshold).astype(np.int32)
        try:
            parts.append((threshold, links, _restrict(topology, links)))
        except DisconnectedError:
            break
    for threshold, links, part in reversed(parts):
        for unit in _units(part, threshold) if fine else (threshold,):
            yield Usage(part, links, _capacity(part, unit))


def _thresholds(topology: Topology, most: int) -> list[int]:
    speeds = np.unique(topology.bandwidth)
    widest = np.argsort(-(speeds[1:] / speeds[:-1]), kind="stable")[: most - 1] + 1
    return [int(speed) for speed in speeds[[0, *np.sort(widest)]]]


def _restrict(topology: Topology, links: NDArray[np.int32]) -> Topology:
    if len(links) == topology.links:
        return topology
    return replace(
        topology,
        link_src=topology.link_src[links],
        link_dst=topology.link_dst[links],
        bandwidth=topology.bandwidth[links],
        latency_ps=topology.latency_ps[links],
        addresses=(),
    )


def _units(topology: Topology, slowest: int) -> Iterator[int]:
    """Units of which the links are nearly multiples, from coarse to fine."""
    yield slowest
    used = _used_ingress(topology, slowest)
    for parts in range(1, _FRACTIONS + 1):
        # Of this fineness, the unit that divides one of the speeds and wastes least of the others.
        units = {
            max(1, speed // -(-speed * parts // slowest)) for speed in np.unique(topology.bandwidth).tolist()
        }
        best = max(units, key=lambda unit: (_used_ingress(topology, unit), unit))
        if _used_ingress(topology, best) > _WORTH * used:
            used = _used_ingress(topology, best)
            yield best


def _used_ingress(topology: Topology, unit: int) -> float:
    return _least_ingress(topology, _capacity(topology, unit) * np.float64(unit))


def _least_ingress(topology: Topology, speed: NDArray[np.int64] | NDArray[np.float64]) -> float:
    return float(np.bincount(topology.link_dst, speed, topology.nodes)[: topology.ranks].min())


def _capacity(topology: Topology, unit: int) -> NDArray[np.int32]:
    return np.minimum(topology.bandwidth // unit, topology.ranks * topology.ranks).astype(np.int32)
