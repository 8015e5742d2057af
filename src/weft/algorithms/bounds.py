"""What no schedule can beat: the time a collective needs at least, and why.

Two things limit every schedule. Data must cross the borders of sets of ranks, and borders carry only so much;
and a byte needs the latency of the shortest path between the ranks farthest apart. The bound is the larger of
the two, not their sum: one may hide behind the other.

The bounds hold for any schedule that moves and adds whole elements between ranks (no coding across elements,
no sums or copies made by switches). They are simple and exact: each names a set, or a division of all ranks
into sets, and can be checked by hand. They are not always the best there is: duals of linear programmes over
trees can be sharper, notably where a few links failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft import units
from weft.algorithms import node_sets
from weft.algorithms.distances import longest_path
from weft.errors import InputError
from weft.schedule import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft.algorithms.node_sets import SetFamily
    from weft.topology import Topology

_MOST_AXES: Final = 8
"""Dimensions of a grid up to which every choice of them is tried."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A time that no schedule of a collective beats.

    Parameters
    ----------
    seconds
        The bound: the larger of the next two.
    kind
        Which one it is, such as ``bandwidth: singletons`` or ``latency``.
    bandwidth_seconds, latency_seconds
        The best bound of either sort.
    explanation
        The arithmetic behind `seconds`, for people.
    """

    seconds: float
    kind: str
    bandwidth_seconds: float
    latency_seconds: float
    explanation: str


class _Finding(NamedTuple):
    seconds: Fraction
    kind: str
    explanation: str


@dataclass(frozen=True)
class _Demand:
    """What a collective must move, in bytes."""

    collective: str
    ranks: int
    size_bytes: int
    element_bytes: int
    root: int

    def shards(self, count: NDArray[Any]) -> NDArray[Any]:
        """Least bytes that so many of the N nearly equal shards have together."""
        each, larger = divmod(self.size_bytes // self.element_bytes, self.ranks)
        least: NDArray[Any] = count * each + np.maximum(count - (self.ranks - larger), 0)
        return least * self.element_bytes

    def across(self, size: NDArray[Any], has_root: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bytes that must leave, and enter, sets of so many ranks; exact for sizes of type object."""
        inner, outer = self.shards(size), self.shards(self.ranks - size)
        whole = np.full_like(inner, self.size_bytes)
        if self.collective == "all_gather":
            return inner, outer
        if self.collective == "reduce_scatter":
            return outer, inner
        if self.collective == "all_to_all":
            return size * outer, (self.ranks - size) * inner
        if self.collective == "broadcast":
            return whole * has_root, whole * ~has_root
        if self.collective == "reduce":
            return whole * ~has_root, whole * has_root
        return whole, whole

    @property
    def passes(self) -> int:
        """How often, at least, each byte changes sets per set but one; 0 where that bounds nothing."""
        return {"all_reduce": 2, "all_to_all": 0}.get(self.collective, 1)

    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ranks that data must come from, and go to, each of the former to each of the latter."""
        everyone = np.arange(self.ranks)
        root = np.array([self.root])
        owners = everyone[: self.size_bytes // self.element_bytes]
        by_collective = {
            "all_gather": (owners, everyone),
            "reduce_scatter": (everyone, owners),
            "all_to_all": (everyone, owners),
            "broadcast": (root, everyone),
            "reduce": (everyone, root),
        }
        return by_collective.get(self.collective, (everyone, everyone))


def lower_bound(
    topology: Topology, collective: str, size_bytes: int, root: int = 0, *, element_bytes: int = 1
) -> Bound:
    """Seconds that a collective takes at least, whatever the schedule.

    Parameters
    ----------
    topology
        The cluster.
    collective
        One of `weft.schedule.COLLECTIVES`.
    size_bytes
        The buffer, as in `Schedule.chunk_bytes`.
    root
        For broadcast and reduce.
    element_bytes
        Size of an element; only matters to how evenly a small buffer is shared out.

    Returns
    -------
    Bound
        Seconds, the kind of bound and its explanation.

    Raises
    ------
    InputError
        If the collective is unknown, the root is no rank, or the size is not whole elements.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> bound = lower_bound(load_topology("torus:8x8@bw=1GB/s"), "all_reduce", 64_000_000)
    >>> bound.kind, bound.seconds, bound.explanation
    ('bandwidth: singletons', 0.0315, 'each rank a set of its own: 126 x 64MB over 256 links (256GB/s
    together)')
    >>> lower_bound(load_topology("hosts:4,4@uplink=1GB/s"), "all_reduce", 64_000_000).explanation
    'out of host 0 (ranks 0 to 3): 64MB over s0->s2 (1GB/s)'

    Notes
    -----
    All-reduce: if disjoint sets P_1 .. P_p cover all ranks, each element crosses from one set to another at
    least 2 (p - 1) times, so T >= 2 (p - 1) M / (capacity leaving P_1 + .. + capacity leaving P_p); and for
    each single set T >= M / capacity leaving it, and entering it. Broadcast, reduce, reduce-scatter and
    all-gather: p - 1 crossings likewise. Single sets S for reduce-scatter and all-gather (equal shards of
    M/N): all-gather has |S| M/N leave S, reduce-scatter (N - |S|) M/N; all-to-all |S| (N - |S|) M/N;
    broadcast M if the root is in S. Entering is the mirror image. Sets tried: single ranks, groups, a grid's
    slabs, minimum cuts on irregular networks; divisions: single ranks, groups, a mixture of both, and a
    grid's rows and planes. Cost: below a second for 1024 ranks.

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
       MPICH", IJHPCA 19(1), 2005.
    """
    _check(topology, collective, size_bytes, root, element_bytes)
    if size_bytes == 0:
        return Bound(0.0, "latency", 0.0, 0.0, "an empty buffer needs no transfer")
    demand = _Demand(collective, topology.ranks, size_bytes, element_bytes, root)
    findings = [_worst_set(topology, demand, family) for family in node_sets.families(topology, root)]
    if demand.passes:
        findings.extend(_divisions(topology, demand))
    # The first of equals: single sets come before divisions, and ranks before groups.
    best = max(findings, key=lambda finding: finding.seconds)
    path = longest_path(topology, *demand.ends())
    latency = Fraction(path.latency_ps, units.PS_PER_S)
    if latency > best.seconds:
        text = (
            f"rank {path.src} to rank {path.dst}: {units.format_time(path.latency_ps)} by the shortest path"
        )
        return Bound(float(latency), "latency", float(best.seconds), float(latency), text)
    return Bound(
        float(best.seconds), f"bandwidth: {best.kind}", float(best.seconds), float(latency), best.explanation
    )


def _check(topology: Topology, collective: str, size_bytes: int, root: int, element_bytes: int) -> None:
    if collective not in COLLECTIVES:
        msg = f"collective {collective!r} is unknown, expected one of {', '.join(COLLECTIVES)}"
        raise InputError(msg)
    if not 0 <= root < topology.ranks:
        msg = f"root {root}: {topology.name} has ranks 0..{topology.ranks - 1}"
        raise InputError(msg)
    if size_bytes < 0 or element_bytes < 1 or size_bytes % element_bytes:
        msg = f"{size_bytes} bytes are not a whole number of {element_bytes}-byte elements"
        raise InputError(msg)


def _worst_set(topology: Topology, demand: _Demand, family: SetFamily) -> _Finding:
    """Find the set of a family, and the direction, that takes longest."""
    needs = demand.across(family.size.astype(np.float64), family.has_root)
    seconds = np.stack([needs[0] / family.out, needs[1] / family.into])
    direction, index = np.unravel_index(int(seconds.argmax()), seconds.shape)
    outward = int(direction) == 0
    name, inside = family.show(int(index), outward)
    links = node_sets.border(topology, inside, outward=outward)
    size = int(demand.across(family.size[[index]].astype(object), family.has_root[[index]])[direction][0])
    exact = Fraction(size, node_sets.capacity(topology, links))
    where = f"{'out of' if outward else 'into'} {name}"
    text = f"{where}: {units.format_size(size)} over {_name_links(topology, links)}"
    return _Finding(exact, family.kind, text)


def _name_links(topology: Topology, links: NDArray[np.int64]) -> str:
    speed = units.format_bandwidth(node_sets.capacity(topology, links))
    if len(links) > 2:
        return f"{len(links)} links ({speed} together)"
    names = " and ".join(topology.link_name(link) for link in links.tolist())
    return f"{names} ({speed}{' together' if len(links) > 1 else ''})"


def _divisions(topology: Topology, demand: _Demand) -> Iterator[_Finding]:
    """All ranks divided into sets, each byte having to visit every set."""
    ports = [np.flatnonzero(ends < topology.ranks) for ends in (topology.link_src, topology.link_dst)]
    links = min(ports, key=lambda links: node_sets.capacity(topology, links))
    speed, over = node_sets.capacity(topology, links), _name_links(topology, links)
    yield _divide(demand, topology.ranks, speed, "singletons", "each rank a set of its own", over)
    if topology.groups:
        yield from _divide_groups(topology, demand)
    if topology.grid is not None:
        yield from _divide_grid(topology, demand)


def _divide(
    demand: _Demand, sets: int, speed: int, kind: str, what: str, over: str | None = None
) -> _Finding:
    crossings = demand.passes * (sets - 1)
    over = over or f"what leaves them ({units.format_bandwidth(speed)} together)"
    text = f"{what}: {crossings} x {units.format_size(demand.size_bytes)} over {over}"
    return _Finding(Fraction(crossings * demand.size_bytes, speed), kind, text)


def _divide_groups(topology: Topology, demand: _Demand) -> Iterator[_Finding]:
    """Take groups as sets, and the best mixture of whole groups and groups taken apart into ranks."""
    word = "host" if topology.hosts else "group"
    for outward in (True, False):
        masks = node_sets.group_masks(topology, outward=outward)
        whole = [node_sets.capacity(topology, node_sets.border(topology, m, outward=outward)) for m in masks]
        ports = node_sets.port_capacity(topology)[0 if outward else 1]
        apart = [sum(int(ports[rank]) for rank in group) for group in topology.groups]
        sizes = [len(group) for group in topology.groups]
        yield _divide(demand, len(sizes), sum(whole), f"{word}s", f"each {word} a set of its own")
        split = _best_mixture(whole, apart, sizes)
        if any(split) and not all(split):
            sets = sum(size if s else 1 for s, size in zip(split, sizes, strict=True))
            speed = sum(b if s else a for s, a, b in zip(split, whole, apart, strict=True))
            names = [str(index) for index, s in enumerate(split) if s]
            shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
            what = f"ranks of {word} {shown} and the other {word}s as sets"
            yield _divide(demand, sets, speed, f"{word}s and singletons", what)


def _best_mixture(whole: list[int], apart: list[int], sizes: list[int]) -> list[bool]:
    """Which groups to take apart so that (sets - 1) / capacity is largest, by Dinkelbach's method."""
    split = [False] * len(sizes)
    ratio = Fraction(0)
    while True:
        sets = sum(size if s else 1 for s, size in zip(split, sizes, strict=True))
        found = Fraction(sets - 1, sum(b if s else a for s, a, b in zip(split, whole, apart, strict=True)))
        if found <= ratio:
            return split
        ratio = found
        split = [
            size - 1 > ratio * (b - a) if size > 1 else False
            for size, a, b in zip(sizes, whole, apart, strict=True)
        ]


def _divide_grid(topology: Topology, demand: _Demand) -> Iterator[_Finding]:
    """Ranks that agree in some dimensions as sets, for every choice of dimensions but none and all."""
    grid = topology.grid
    assert grid is not None
    axes = [axis for axis, size in enumerate(grid.shape) if size > 1]
    ends = (np.stack(np.unravel_index(end, grid.shape)) for end in (topology.link_src, topology.link_dst))
    differs = np.not_equal(*ends)
    speeds = {axis: node_sets.capacity(topology, np.flatnonzero(differs[axis])) for axis in axes}
    by_speed = sorted(axes, key=lambda axis: speeds[axis])
    choices = (
        [choice for count in range(1, len(axes)) for choice in combinations(axes, count)]
        if len(axes) <= _MOST_AXES
        else [tuple(by_speed[:count]) for count in range(1, len(axes))]
    )
    for choice in choices:
        crossing = node_sets.capacity(topology, np.flatnonzero(differs[list(choice)].any(axis=0)))
        sets = int(np.prod([grid.shape[axis] for axis in choice]))
        named = " and ".join(str(axis) for axis in choice)
        what = f"ranks at one position of dimension {named} a set"
        yield _divide(demand, sets, crossing, "slabs", what)
