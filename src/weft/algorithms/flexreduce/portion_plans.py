"""Plans for an all-reduce with uneven portions: levels, how each exchanges, and who keeps how much.

A plan is all that `weft.algorithms.flexreduce` needs to write its transfers down, and what they cost on the
links that they really use. `weft.algorithms.flexreduce.balancing` looks for better portions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.levels import find_levels, flat, two_levels
from weft.algorithms.common.ring_orders import ring_order
from weft.algorithms.flexreduce.exchange_rounds import DIRECT, RING, Busy, busy_links
from weft.algorithms.flexreduce.intervals import Holding, meet, share_out

if TYPE_CHECKING:
    from weft.algorithms.common.levels import ClusterPart
    from weft.algorithms.flexreduce.intervals import GroupExchange, PartsMeeting
    from weft.topology import Topology

_MOST_DIRECT: Final = 256
"""Ranks up to which all exchange directly without any levels."""

Shares = list[list[Fraction]]
"""Of every group in `ClusterPart.walk` order, what each of its parts keeps."""


@dataclass(frozen=True)
class PortionPlan:
    """Who keeps how much, at every level.

    Parameters
    ----------
    topology, cluster
        Where, and its levels.
    kinds
        How the groups of each height exchange, lowest first.
    shares
        What the parts of each group keep.
    meetings, exchanges
        The parts of every group before they exchange, and the exchange; in `ClusterPart.walk` order too.
    grid
        Cuts below the top level are multiples of 1/grid, or anywhere.
    """

    topology: Topology
    cluster: ClusterPart
    kinds: tuple[str, ...]
    shares: Shares
    meetings: list[PartsMeeting]
    exchanges: list[GroupExchange]
    grid: int | None = None

    def kind(self, group: ClusterPart) -> str:
        """How the parts of a group exchange."""
        return self.kinds[group.height - 1]

    @cached_property
    def numbers(self) -> dict[Fraction, int]:
        """Number of each piece of the whole cluster's exchange, by where it begins."""
        return {start: number for number, start in enumerate(self.exchanges[-1].starts)}

    @cached_property
    def stages(self) -> list[Busy]:
        """How long each link is busy at each level, lowest first."""
        levels: list[list[GroupExchange]] = [[] for _ in self.kinds]
        for exchange in self.exchanges:
            levels[exchange.group.height - 1].append(exchange)
        return [busy_links(self.topology, *level) for level in zip(self.kinds, levels, strict=True)]

    @cached_property
    def busiest(self) -> float:
        """Seconds per byte for which the busiest link is busy: what a long pipeline takes."""
        return float(np.sum([stage.both for stage in self.stages], axis=0).max())


def make_plan(
    topology: Topology, cluster: ClusterPart, kinds: tuple[str, ...], shares: Shares, grid: int | None = None
) -> PortionPlan:
    """Match intervals level by level; parameters as in `PortionPlan`."""
    meetings: list[PartsMeeting] = []
    exchanges: list[GroupExchange] = []
    holdings: dict[tuple[int, ...], Holding] = {
        (rank,): Holding([Fraction(0)], [rank]) for rank in cluster.ranks
    }
    for group, kept in zip(cluster.walk(), shares, strict=True):
        meetings.append(meet(group, [holdings[part.ranks] for part in group.parts]))
        exchanges.append(share_out(meetings[-1], kept, grid if group is not cluster else None))
        holdings[group.ranks] = exchanges[-1].holding
    return PortionPlan(topology, cluster, kinds, shares, meetings, exchanges, grid)


def list_forms(topology: Topology, shape: str = "auto") -> list[tuple[ClusterPart, tuple[str, ...]]]:
    """Levels that a plan may have, and how each exchanges, lowest first.

    Parameters
    ----------
    topology
        The cluster.
    shape
        ``ring``, ``levels`` or ``auto``, as for `weft.algorithms.flexreduce.all_reduce`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [kinds for _, kinds in list_forms(load_topology("hosts:2,1"))][:2]
    [('ring',), ('direct', 'direct')]
    """
    cluster = find_levels(topology)
    found: list[tuple[ClusterPart, tuple[str, ...]]] = []
    if shape != "levels":
        found.append((flat(ring_order(topology)[0]), (RING,)))
        if shape == "auto" and cluster.height == 1 and topology.ranks <= _MOST_DIRECT:
            found.append((cluster, (DIRECT,)))
    if shape != "ring" and cluster.height > 1:
        # More levels spare the uppermost links, fewer the others.
        choices = [cluster, *([two_levels(topology)] if cluster.height > 2 and topology.groups else [])]
        found += [
            (levels, (*[below] * (levels.height - 1), top))
            for levels in choices
            for below, top in product((DIRECT, RING), repeat=2)
        ]
    return found


def even_shares(cluster: ClusterPart) -> Shares:
    """Equal shares for the parts of each group."""
    return [[Fraction(1, len(group.parts))] * len(group.parts) for group in cluster.walk()]
