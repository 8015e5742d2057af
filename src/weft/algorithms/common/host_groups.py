"""What the algorithms that know about hosts share: their order, their leaders and their checks.

Groups are `Topology.groups`: hosts where they are named, else the ranks of one switch. Nothing here is
specific to one algorithm, and nothing looks at the network beyond groups and link speeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft import limits
from weft.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.topology import Topology


def host_major(topology: Topology) -> NDArray[np.int64]:
    """Ranks one group after the other, so that neighbours in this order are near; rank order without groups.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> host_major(load_topology("hosts:2,3")).tolist()
    [0, 1, 2, 3, 4]
    """
    if not topology.groups:
        return np.arange(topology.ranks)
    return np.array([rank for group in topology.groups for rank in group], np.int64)


def require_groups(topology: Topology, algorithm: str, instead: str) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a topology, or raise an `UnsupportedError` that says what to use instead."""
    if not topology.groups:
        reason = f"{topology.name} has no groups: neither hosts nor leaf switches divide its ranks"
        raise UnsupportedError(algorithm, reason, instead)
    return topology.groups


def port_speeds(topology: Topology) -> NDArray[np.float64]:
    """Bytes per second that each rank can exchange, by its slower direction.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> port_speeds(load_topology("mesh:3@bw=1GB/s,back=3GB/s")).tolist()
    [1000000000.0, 4000000000.0, 1000000000.0]
    """
    ends = (topology.link_src, topology.link_dst)
    sent, received = (np.bincount(end, topology.bandwidth, topology.nodes) for end in ends)
    return np.minimum(sent, received)[: topology.ranks]


def leader_first(speeds: NDArray[np.float64], group: Sequence[int], leader: int | None = None) -> list[int]:
    """Put the leader of a group in front: the one given, else the first of the fastest by `port_speeds`.

    A rank whose own network interface failed therefore does not lead.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> leader_first(port_speeds(load_topology("dgx-h100:2@fabric=flat+fail=0-s2")), range(4))
    [1, 0, 2, 3]
    """
    if leader is None:
        leader = max(group, key=lambda rank: float(speeds[rank]))
    return [leader, *(rank for rank in group if rank != leader)]


def check_count(algorithm: str, name: str, value: int) -> int:
    """Return a parameter that counts something if it is at least 1."""
    if value < 1:
        raise InputError(f"{algorithm}: {name}={value} must be at least 1")
    return value


def check_rows(algorithm: str, rows: int) -> None:
    """Refuse a schedule that would be too large, before any of it is made."""
    limits.check(f"{algorithm}: transfers", rows, limits.MAX_TRANSFERS)
