"""FlexReduce and the conventional all-reduces beside it.

FlexReduce has all its plans here, whether it would choose them or not, and the others have the options that
``weft plan`` tries.

BlueConnect needs the same number of ranks in every group. Where a cluster does not have it, there are two
ways to help, and both are tried: levels that divide all hosts evenly, so that a large host counts as several;
and the largest part of the cluster that is symmetric, to which the ranks outside hand their data before, and
from which they get the sums after.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms import blueconnect, registry
from weft.algorithms.common.levels import find_levels
from weft.algorithms.flexreduce.portion_plans import list_forms
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.algorithms.common.levels import ClusterPart
    from weft.schedule import Schedule
    from weft.topology import Topology

FLEX: Final = "flexreduce"
CONVENTIONAL: Final = ("ring", "leaders", "blueconnect", "double tree")
NAMES: Final = (FLEX, *CONVENTIONAL)
_REGISTERED: Final = {"leaders": "hierarchical", "double tree": "double_binary_tree"}
"""Names in the registry, where they are others."""


def schedules(topology: Topology, name: str) -> tuple[Schedule, ...]:
    """Schedules of a contender, each once; none where it does not apply.

    Examples
    --------
    >>> cluster = load_topology("hosts:4,2")
    >>> [len(schedules(cluster, name)) for name in NAMES]
    [3, 1, 3, 2, 2]
    """
    if name == "blueconnect":
        return tuple(_blueconnects(topology))
    algorithm = registry.find(_REGISTERED.get(name, name))
    found = []
    every = [{"kinds": ",".join(kinds)} for _, kinds in list_forms(topology)]
    for options in every if name == FLEX else algorithm.variants("all_reduce"):
        with contextlib.suppress(UnsupportedError):
            found.append(algorithm.build(topology, "all_reduce", **options))
    return tuple(dict.fromkeys(found))


def symmetric_levels(group: ClusterPart) -> tuple[int, ...] | None:
    """Parts at every level, innermost first, where all groups of a level have equally many; else None.

    Examples
    --------
    >>> symmetric_levels(find_levels(load_topology("hosts:4,4,4,4@racks=2")))
    (4, 2, 2)
    >>> symmetric_levels(find_levels(load_topology("hosts:4,4,4@racks=2")))
    """
    if not group.parts:
        return ()
    below = {symmetric_levels(part) for part in group.parts}
    first = below.pop()
    return None if below or first is None else (*first, len(group.parts))


def symmetric_part(topology: Topology) -> list[tuple[int, ...]]:
    """Equally many ranks of several hosts, as many in all as possible; empty without two hosts.

    Examples
    --------
    >>> symmetric_part(load_topology("hosts:4,3,1"))
    [(0, 1, 2), (4, 5, 6)]
    """
    hosts = topology.groups
    sizes = sorted({len(host) for host in hosts}, reverse=True)
    choices = [(size, [host for host in hosts if len(host) >= size]) for size in sizes]
    choices = [(size, able) for size, able in choices if len(able) > 1]
    if not choices:
        return []
    size, able = max(choices, key=lambda choice: choice[0] * len(choice[1]))
    return [host[:size] for host in able]


def fold(topology: Topology, part: list[tuple[int, ...]]) -> Schedule:
    """BlueConnect on a symmetric part of a cluster; every rank outside hands its data to one inside.

    Ranks outside find a partner in their own host, or anywhere if no rank of that takes part; partners are
    taken in turn.

    Examples
    --------
    >>> cluster = load_topology("hosts:4,2")
    >>> fold(cluster, symmetric_part(cluster)).notes
    ('2 ranks of each of 2 hosts, 2 of the ranks outside',)
    """
    inside = np.array([rank for host in part for rank in host])
    equal = load_topology("hosts:" + ",".join(str(len(host)) for host in part))
    inner = blueconnect.all_reduce(equal)
    builder = ScheduleBuilder(topology, "all_reduce", "blueconnect", chunks=inner.chunks)
    pairs = _partners(topology, inside.tolist())
    first = max((turn for turn, _, _ in pairs), default=-1) + 1
    last = first + inner.steps
    builder.add(
        step=first + inner.step,
        chunk=inner.chunk,
        src=inside[inner.src],
        dst=inside[inner.dst],
        op=inner.op,
    )
    chunk = np.arange(inner.chunks)
    for turn, outer, partner in pairs:
        builder.add(step=turn, chunk=chunk, src=outer, dst=partner, op=Op.REDUCE)
        builder.add(step=last + turn, chunk=chunk, src=partner, dst=outer, op=Op.COPY)
    builder.note(f"{len(part[0])} ranks of each of {len(part)} hosts, {len(pairs)} of the ranks outside")
    return builder.build()


def _partners(topology: Topology, inside: list[int]) -> list[tuple[int, int, int]]:
    """Turn, rank outside, its partner inside."""
    used = dict.fromkeys(inside, 0)
    found = []
    for host in topology.groups:
        own = [rank for rank in host if rank in used] or inside
        for rank in host:
            if rank not in used:
                partner = min(own, key=lambda one: used[one])
                found.append((used[partner], rank, partner))
                used[partner] += 1
    return found


def _blueconnects(topology: Topology) -> Iterator[Schedule]:
    if not topology.groups:
        return
    levels = symmetric_levels(find_levels(topology))
    common = math.gcd(*(len(host) for host in topology.groups))
    if levels is not None:
        yield blueconnect.all_reduce(topology, levels=levels)
    elif common > 1:
        yield blueconnect.all_reduce(topology, levels=(common, topology.ranks // common))
    part = symmetric_part(topology)
    if levels is None and sum(map(len, part)) < topology.ranks and part:
        yield fold(topology, part)
