"""What no schedule can beat: the time a collective needs at least, and why.

Two things limit every schedule. Data must cross the borders of sets of ranks, and borders carry only so much;
and a byte needs the latency of the shortest path between the ranks farthest apart. The bound is the larger of
the two, not their sum: one may hide behind the other.

The bounds hold for any schedule that moves and adds whole elements between ranks (no coding across elements,
no sums or copies made by switches). Each names a set, or a division of all ranks into sets, and can be
checked by hand. Up to some thousand ranks they are the best of their sort, because maximum flows look at
every set and every division (`weft.bounds.tight_cuts`); beyond, only those that have a name are tried. An
all-reduce may have a sharper bound still, proved by prices of links that a linear programme over trees finds.

All-reduce: if disjoint sets P_1 .. P_p cover all ranks, each element crosses from one set to another at least
2 (p - 1) times, so T >= 2 (p - 1) M / (capacity leaving P_1 + .. + capacity leaving P_p); and for each single
set T >= M / capacity leaving it, and entering it. Broadcast, reduce, reduce-scatter and all-gather: p - 1
crossings likewise. Single sets S for reduce-scatter and all-gather (equal shards of M/N): all-gather has
|S| M/N leave S, reduce-scatter (N - |S|) M/N; all-to-all |S| (N - |S|) M/N; broadcast M if the root is in S.
Entering is the mirror image. All sets and divisions are searched, except for all-to-all, and except where
`weft.bounds.tight_cuts.affordable` says no: then single ranks, groups, a grid's slabs, and what they divide
the ranks into. docs/bounds.md derives each of them.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from weft import units
from weft.bounds import node_sets, tight_cuts
from weft.bounds.demands import Demand, SingleBound
from weft.bounds.distances import Path, longest_path
from weft.bounds.divisions import divisions
from weft.errors import InputError, check_choice
from weft.notebook_display import ShortRepr
from weft.schedule import COLLECTIVES

if TYPE_CHECKING:
    from weft.bounds.node_sets import SetFamily
    from weft.topology import Topology

_KEPT_PATHS: Final = 4
"""Longest paths that are kept: comparisons and algorithms ask for bounds of one topology at several sizes."""

_MOST_EQUALS: Final = 4
"""Sets that are looked at to name the best of equals: two hosts, in either direction."""


@dataclass(frozen=True, slots=True, repr=False)
class Bound(ShortRepr):
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


def condition_of(topology: Topology, collective: str, kind: str) -> str:
    """What a bound of this kind takes for granted, in words, or nothing.

    A bound of an all-reduce from a division of all ranks counts each element on its way to a sum and on its
    way back. A switch that adds, as those with NVLink SHARP do, needs fewer passes and can beat it; what one
    set of ranks sends out, and latency, bound such a switch as well.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> condition_of(load_topology("dgx-h100:1"), "all_reduce", "bandwidth: singletons")
    'sums are made at ranks'
    >>> condition_of(load_topology("torus:4x4"), "all_reduce", "bandwidth: singletons")
    ''
    """
    one_set = kind.startswith("bandwidth: one ") or kind.endswith("cut")
    divided = kind.startswith("bandwidth: ") and not one_set
    return "sums are made at ranks" if collective == "all_reduce" and divided and topology.switches else ""


def kind_text(topology: Topology, collective: str, kind: str) -> str:
    """Kind of a bound together with its condition, for people.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> kind_text(load_topology("switch:4"), "all_reduce", "bandwidth: singletons")
    'bandwidth: singletons; sums are made at ranks'
    """
    condition = condition_of(topology, collective, kind)
    return f"{kind}; {condition}" if condition else kind


class Certificate(Protocol):
    """A proof from elsewhere that no all-reduce is faster: prices of links, say, and the cheapest tree."""

    def seconds_per_byte(self, topology: Topology) -> Fraction | float:
        """Check the proof on a topology and return what an all-reduce takes per byte, or raise."""


def lower_bound(
    topology: Topology,
    collective: str,
    size_bytes: int,
    root: int = 0,
    *,
    element_bytes: int = 1,
    certificate: Certificate | None = None,
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
    certificate
        A further proof to take into account, for all_reduce only.

    Raises
    ------
    InputError
        If the collective is unknown, the root is no rank, the size is not whole elements, or there is a
        certificate for another collective than all_reduce.

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
    Cost: 0.1 CPU s for a torus of 1024 ranks.
    """
    _check(topology, collective, size_bytes, root, element_bytes)
    if size_bytes == 0:
        return Bound(0.0, "latency", 0.0, 0.0, "an empty buffer needs no transfer")
    demand = Demand(collective, topology.ranks, size_bytes, element_bytes, root)
    best = _best_bandwidth(topology, demand, certificate)
    owners = min(topology.ranks, size_bytes // element_bytes)
    path = _slowest_path(topology, collective, owners, root)
    latency = Fraction(path.latency_ps, units.PS_PER_S)
    if latency > best.seconds:
        ends, delay = f"rank {path.src} to rank {path.dst}", units.format_time(path.latency_ps)
        text = f"{ends}: {delay} by the shortest path"
        return Bound(float(latency), "latency", float(best.seconds), float(latency), text)
    return Bound(
        float(best.seconds), f"bandwidth: {best.kind}", float(best.seconds), float(latency), best.explanation
    )


@lru_cache(_KEPT_PATHS)
def _slowest_path(topology: Topology, collective: str, owners: int, root: int) -> Path:
    """Find the longest of the shortest paths that data has to take if so many ranks own elements."""
    return longest_path(topology, *Demand(collective, topology.ranks, owners, 1, root).ends())


def _best_bandwidth(topology: Topology, demand: Demand, certificate: Certificate | None) -> SingleBound:
    """Find the set, division or certificate that takes longest."""
    findings = [_worst_set(topology, demand, family) for family in node_sets.families(topology, demand.root)]
    if tight_cuts.affordable(topology):
        findings.append(_worst_set(topology, demand, _searched(topology, demand)))
    if demand.passes:
        findings.extend(divisions(topology, demand))
    if certificate is not None:
        findings.append(_certified(topology, demand, certificate))
    # The first of equals: single sets come before divisions, and those with a name before others.
    return max(findings, key=lambda finding: finding.seconds)


def equal_shard_all_reduce_seconds(topology: Topology, size_bytes: int) -> float:
    """Seconds that an all-reduce takes at least if it is a reduce-scatter and then an all-gather.

    That is how most systems make one, with equal shards and one phase after the other. Not a bound on
    all-reduce as such: uneven shards, or phases that overlap, can be faster. It is what to compare those
    with.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> mesh = load_topology("mesh:4x4@bw=1GB/s")
    >>> equal_shard_all_reduce_seconds(mesh, 16_000_000), lower_bound(mesh, "all_reduce", 16_000_000).seconds
    (0.015, 0.01)
    """
    phases = ("reduce_scatter", "all_gather")
    return sum(lower_bound(topology, phase, size_bytes).bandwidth_seconds for phase in phases)


def any_shard_half_seconds(topology: Topology, size_bytes: int) -> float:
    """Seconds that either half of an all-reduce takes at least, whoever owns which part between the halves.

    The halves are a reduce-scatter and an all-gather whose shards may be of any sizes, as those of an
    all-reduce that is cut in two. In either half each element changes sets p - 1 times, half as often as in
    the all-reduce, and if a set owns the share a, then 1 - a leaves it and a enters it: the longer of these
    takes half the time of the whole at least, where as much can enter as leave. Elsewhere only divisions of
    all ranks count.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> hosts = load_topology("hosts:4,2@uplink=1GB/s")
    >>> any_shard_half_seconds(hosts, 6_000_000), lower_bound(hosts, "all_gather", 6_000_000).seconds
    (0.003, 0.004)
    """
    demand = Demand("all_reduce", topology.ranks, size_bytes, 1, 0)
    if np.array_equal(*node_sets.port_capacity(topology)):
        return float(_best_bandwidth(topology, demand, None).seconds) / 2
    return float(max(finding.seconds for finding in divisions(topology, demand))) / 2


def _check(topology: Topology, collective: str, size_bytes: int, root: int, element_bytes: int) -> None:
    check_choice("collective", collective, COLLECTIVES)
    topology.check_root(root)
    if size_bytes < 0 or element_bytes < 1 or size_bytes % element_bytes:
        raise InputError(f"{size_bytes} bytes are not a whole number of {element_bytes}-byte elements")


def _certified(topology: Topology, demand: Demand, certificate: Certificate) -> SingleBound:
    if demand.collective != "all_reduce":
        raise InputError(f"a certificate bounds all_reduce, not {demand.collective}; leave it out")
    per_byte = Fraction(certificate.seconds_per_byte(topology))
    if not per_byte:
        # Prices of one direction alone bound packings of trees; of other schedules they prove nothing.
        return SingleBound(per_byte, "certificate", "prices of the links, which are of one direction alone")
    rate = units.human_bandwidth(int(1 / per_byte))
    text = f"prices of the links: no packing of trees carries more than {rate}"
    return SingleBound(per_byte * demand.size_bytes, "certificate", text)


def _searched(topology: Topology, demand: Demand) -> SetFamily:
    """Sets without a name: for all but all-to-all, the worst there are."""
    if demand.collective in ("all_gather", "reduce_scatter"):
        masks = [tight_cuts.densest(topology, outward=demand.collective == "all_gather")]
        return node_sets.chosen(topology, demand.root, "equal-shard cut", masks)
    ways = {"broadcast": (True,), "reduce": (False,)}.get(demand.collective, (True, False))
    masks = [tight_cuts.thinnest(topology, demand.root, outward=outward) for outward in ways]
    if demand.collective == "all_to_all":
        masks += [tight_cuts.densest(topology, outward=outward) for outward in ways]
    return node_sets.chosen(topology, demand.root, "minimum cut", masks)


def _worst_set(topology: Topology, demand: Demand, family: SetFamily) -> SingleBound:
    """Find the set of a family, and the direction, that takes longest."""
    needs = demand.across(family.size.astype(np.float64), family.has_root)
    seconds = np.stack([needs[0] / family.out, needs[1] / family.into])
    # One host's way out may be the only other one's way in: it belongs to whom it is nearer, by switches.
    equals = [(int(d), int(i)) for d, i in np.argwhere(seconds == seconds.max())[:_MOST_EQUALS]]
    shown = {one: family.show(one[1], one[0] == 0) for one in equals}
    direction, index = min(equals, key=lambda one: int(shown[one][1][topology.ranks :].sum()))
    outward = direction == 0
    name, inside = shown[direction, index]
    links = node_sets.border(topology, inside, outward=outward)
    size = int(demand.across(family.size[[index]].astype(object), family.has_root[[index]])[direction][0])
    exact = Fraction(size, node_sets.capacity(topology, links))
    where = f"{'out of' if outward else 'into'} {name}"
    text = f"{where}: {units.format_size(size)} over {node_sets.name_links(topology, links)}"
    return SingleBound(exact, family.kind, text)
