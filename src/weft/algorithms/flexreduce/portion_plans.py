"""Plans for an all-reduce with uneven portions: levels, how each exchanges, and who keeps how much.

A plan is all that `weft.algorithms.flexreduce` needs to write its transfers down, and what they cost on the
links that they really use. `weft.algorithms.flexreduce.balancing` looks for better portions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weft import units
from weft.algorithms.flexreduce.exchange_rounds import Busy, busy_links, hop_latency
from weft.algorithms.flexreduce.intervals import Holding, meet, share_out

if TYPE_CHECKING:
    from weft.algorithms.common.levels import ClusterPart
    from weft.algorithms.flexreduce.intervals import GroupExchange, PartsMeeting
    from weft.topology import Topology

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
    def stages(self) -> list[Busy]:
        """How long each link is busy at each level, lowest first."""
        links = self.topology.links
        stages = [Busy(np.zeros(links), np.zeros(links)) for _ in self.kinds]
        for exchange in self.exchanges:
            busy = busy_links(self.topology, self.kind(exchange.group), exchange)
            for total, more in zip(stages[exchange.group.height - 1], busy, strict=True):
                total += more
        return stages

    @cached_property
    def busiest(self) -> float:
        """Seconds per byte for which the busiest link is busy: what a long pipeline takes."""
        return float(np.sum([stage.both for stage in self.stages], axis=0).max())

    @cached_property
    def staged(self) -> float:
        """Seconds per byte if every level waits for the one before."""
        return sum(stage.staged for stage in self.stages)

    @cached_property
    def latency(self) -> float:
        """Seconds that a byte needs at least, up all levels and down again."""
        slowest = [0] * len(self.kinds)
        for exchange in self.exchanges:
            height = exchange.group.height - 1
            slowest[height] = max(
                slowest[height], hop_latency(self.topology, self.kind(exchange.group), exchange)
            )
        return 2 * sum(slowest) / units.PS_PER_S

    def seconds(self, size_bytes: int, pieces: int) -> float:
        """Estimate of the time for a buffer that goes through the levels in so many pieces."""
        filling = max(self.staged - self.busiest, 0.0) / pieces
        return (self.busiest + filling) * size_bytes + self.latency


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


def even_shares(cluster: ClusterPart) -> Shares:
    """Equal shares for the parts of each group."""
    return [[Fraction(1, len(group.parts))] * len(group.parts) for group in cluster.walk()]
