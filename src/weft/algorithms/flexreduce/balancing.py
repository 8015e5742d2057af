"""Better portions for a plan: never a busier link than with even ones.

Between the parts of the whole cluster, loads are linear in the portions, and a linear programme finds the
best. Inside groups portions also decide where cuts fall; they are only touched where ranks of one group are
not alike, and then step by step, each step a linear programme in the neighbourhood of what is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.host_groups import port_speeds
from weft.algorithms.flexreduce.exchange_rounds import RING, busy_if_kept, find_routes, link_load, partners
from weft.algorithms.flexreduce.intervals import share_out
from weft.algorithms.flexreduce.portion_plans import make_plan
from weft.algorithms.flexreduce.portions import are_best, balance, balance_groups, fill_ring

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from weft.algorithms.flexreduce.portion_plans import PortionPlan

_MOST_ENTRIES: Final = 1 << 22
"""Links times parts up to which a linear programme is asked."""

NEAR: Final = 1.001
"""Factor within which a plan counts as good as the bound, or as another plan."""

_ROUNDS: Final = 3
"""Steps taken inside groups."""

_MOST_RANKS: Final = 256
"""Ranks up to which portions inside groups are looked at even if all members of a group have equal ports."""


def balance_plan(plan: PortionPlan, bound: float) -> PortionPlan:
    """Change portions so that the busiest link is busy as short as possible.

    Parameters
    ----------
    plan
        With even portions.
    bound
        Seconds per byte that no schedule beats; a plan that reaches it is left as it is.

    Returns
    -------
    Plan
        Better, or the same.
    """
    best = _balance_top(plan, bound)
    for _ in range(_ROUNDS if _members_may_differ(plan) else 0):
        if best.busiest <= NEAR * bound:
            break
        following = _balance_top(_balance_inside(best), bound)
        if following.busiest * NEAR > best.busiest:
            break
        best = following
    return best


def _members_may_differ(plan: PortionPlan) -> bool:
    if plan.cluster.height < 2 or not _fits(plan, sum(len(kept) for kept in plan.shares)):
        return False
    speeds = port_speeds(plan.topology)
    uneven = any(len(set(speeds[list(part.ranks)].tolist())) > 1 for part in plan.cluster.parts)
    return uneven or plan.topology.ranks <= _MOST_RANKS


def _fits(plan: PortionPlan, columns: int) -> bool:
    return plan.topology.links * columns <= _MOST_ENTRIES


def _balance_top(plan: PortionPlan, bound: float) -> PortionPlan:
    """Balance between the parts of the whole cluster."""
    if plan.busiest <= NEAR * bound:
        return plan
    if plan.kinds == (RING,):
        speeds, alone = _hop_speeds(plan)
        if alone:
            return _with_top(plan, fill_ring(speeds).shares)
    if not _fits(plan, len(plan.cluster.parts)):
        return plan
    busy = busy_if_kept(plan.topology, plan.kinds[-1], plan.meetings[-1])
    fixed = np.sum([np.zeros(plan.topology.links), *(stage.both for stage in plan.stages[:-1])], axis=0)
    if are_best(busy.both, fixed, np.array([float(share) for share in plan.shares[-1]])):
        return plan
    found = _with_top(plan, balance(busy.scatter, busy.gather, fixed))
    return found if found.busiest < plan.busiest else plan


def _with_top(plan: PortionPlan, shares: list[Fraction]) -> PortionPlan:
    exchange = share_out(plan.meetings[-1], shares)
    return replace(plan, shares=[*plan.shares[:-1], shares], exchanges=[*plan.exchanges[:-1], exchange])


def _hop_speeds(plan: PortionPlan) -> tuple[list[int], bool]:
    """Speed of the hop from each part to the next, there and back, and whether no link serves two of them."""
    topology = plan.topology
    ring = np.array([part.ranks[0] for part in plan.cluster.parts], np.int32)
    ends = np.roll(ring, -1)
    offsets, links = topology.routes(np.concatenate([ring, ends]), np.concatenate([ends, ring]))
    slowest = np.minimum.reduceat(topology.bandwidth[links], offsets[:-1]).reshape(2, -1).min(axis=0)
    return slowest.tolist(), len(np.unique(links)) == len(links)


def _balance_inside(plan: PortionPlan) -> PortionPlan:
    """One step for the portions inside groups, those between the parts of the cluster as they are."""
    parts = [len(kept) for kept in plan.shares[:-1]]
    kept = np.array([float(share) for shares in plan.shares[:-1] for share in shares])
    slope = _slopes(plan, np.maximum(kept, 1e-9))
    fixed = np.sum([stage.both for stage in plan.stages], axis=0) - slope @ kept
    inside = balance_groups(slope, fixed, parts)
    return make_plan(plan.topology, plan.cluster, plan.kinds, [*inside, plan.shares[-1]], plan.grid)


def _slopes(plan: PortionPlan, kept: NDArray[np.float64]) -> NDArray[np.float64]:
    """How the seconds of each link change with what each part of each inner group keeps."""
    topology, columns = plan.topology, len(kept)
    slope = np.zeros((topology.links, columns + 1))
    first = 0
    # Column of the part that each rank is in, by height of the group; ranks without one share the last.
    column = np.full((plan.cluster.height, topology.ranks), columns)
    for meeting in plan.meetings[:-1]:
        group = meeting.group
        after = first + len(group.parts)
        slope[:, first:after] += busy_if_kept(topology, plan.kind(group), meeting).both
        for index, part in enumerate(group.parts):
            column[group.height, list(part.ranks)] = first + index
        first = after
    for exchange in plan.exchanges:
        src, dst = partners(plan.kind(exchange.group), exchange.holders, exchange.keeper)
        weight = np.array([float(length) for length in exchange.lengths])
        routes = [find_routes(topology, *ends) for ends in ((src, dst), (dst, src))]
        for height in range(1, exchange.group.height):
            for end in (src, dst):
                at = column[height, end]
                load = weight / np.append(kept, 1.0)[at]
                for paths in routes:
                    slope += link_load(topology, paths, load, at, columns + 1)
    return slope[:, :-1]
