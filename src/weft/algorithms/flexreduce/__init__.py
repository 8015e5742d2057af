"""FlexReduce: all-reduce with uneven portions, for clusters whose hosts or links differ.

BlueConnect needs equally many ranks in every group, and gives every rank the same portion of the buffer. Here
groups may have any size (`weft.algorithms.flexreduce.intervals`), and portions are such that the busiest link
is busy as short as possible (`weft.algorithms.flexreduce.balancing`): a slow link carries no more than it
must. Where all is even, even portions come out, and the cost is BlueConnect's.

The idea is that of "FlexReduce" [1]_. Only the abstract of the paper was at hand; the equations here are
derived from it in docs/flexreduce.md. There is no reduce_scatter or all_gather of this name because their
shards are equal by definition; `weft.schedule.halves` makes both with uneven ones.

References
----------
.. [1] J. Lee et al., "FlexReduce: flexible all-reduce for distributed deep learning on asymmetric network
   topology", DAC 2020.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.host_groups import check_count, check_rows
from weft.algorithms.flexreduce.balancing import NEAR, balance_plan
from weft.algorithms.flexreduce.exchange_rounds import RING, partners
from weft.algorithms.flexreduce.pipeline_estimate import estimate_seconds
from weft.algorithms.flexreduce.portion_plans import even_shares, list_forms, make_plan
from weft.bounds.collective_bound import lower_bound
from weft.errors import InputError, UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from numpy.typing import NDArray

    from weft.algorithms.common.levels import ClusterPart
    from weft.algorithms.flexreduce.portion_plans import PortionPlan
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "flexreduce"
_SHAPES: Final = ("auto", "ring", "levels")
_PORTIONS: Final = ("balanced", "even")

VARIANTS: Final = ({"shape": "levels"}, {"shape": "ring"})
"""Further options that `weft.plan` tries, besides the sizes that a plan is for."""

_MOST_ROWS: Final = 1 << 21
"""Transfers beyond which portions are not cut any finer than they must be."""

_ALIKE: Final = 1.01
"""Factor within which one plan's busiest link counts as no busier than another's."""

_USUAL_BYTES: Final = 16 << 20
"""Size that decides between plans that are equally good in the long run, where it is not known."""

_LARGEST_WEIGHT: Final = 1 << 48


def all_reduce(
    topology: Topology,
    *,
    shape: str = "auto",
    kinds: str | None = None,
    portions: str = "balanced",
    parts: int = 8,
    size_bytes: int | None = None,
) -> Schedule:
    """Reduce-scatter level by level with uneven portions, then all-gather as the exact mirror image.

    Parameters
    ----------
    topology
        Any cluster; it pays where groups differ in size, or links in speed.
    shape
        ``ring``: one ring through all ranks. ``levels``: inside groups, then between them, each level a ring
        or a direct exchange. ``auto``: whichever of all these should be fastest.
    kinds
        How levels exchange, lowest first, such as ``"direct,ring"``; by default whatever should be fastest.
    portions
        ``balanced``, or ``even`` to compare with.
    parts
        Pieces, on average, that a rank's portion is cut into. They follow one another through the levels, and
        large portions have more of them, so that all make progress in proportion.
    size_bytes
        Size of the buffer, if it is known: the plan that should be fastest for it is taken. Otherwise that
        of those which keep their busiest link busy least; among equals, the fastest at 16 MiB.

    Returns
    -------
    Schedule
        The owner of a portion has its sum after the first half: `weft.schedule.halves` applies.

    Raises
    ------
    UnsupportedError
        If `shape` is ``levels`` and the topology has no groups, or if it has no levels for these `kinds`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("hosts:2,1@intra=9GB/s,uplink=1GB/s"), shape="ring", parts=1)
    >>> schedule.weights.tolist(), schedule.denominator
    ([1, 1, 1, 1], 4)
    >>> print("; ".join(schedule.notes))
    1 level: ring; portions: 1/2 each, none for 1 of the ranks; busiest link: 1.000 times the proven least

    Notes
    -----
    Steps: 2 * sum over levels of (n_i - 1), and one per piece in both halves; of a direct exchange only one
    step waits for others. Link loads are at most those of even portions, which are BlueConnect's; on one
    switch with any port speeds b they reach the minimum max(2 (N - 1) / sum(b), 1 / min(b)) per byte.
    """
    _check_options(topology, shape, portions, parts, size_bytes)
    bound = lower_bound(topology, "all_reduce", 10**12).bandwidth_seconds / 10**12
    even = _even_plans(topology, _find_forms(topology, shape, kinds))
    plans = [balance_plan(plan, bound) for plan in even] if portions == "balanced" else even
    if size_bytes is None:
        size_bytes = _USUAL_BYTES
        most = min(_ALIKE * min(plan.busiest for plan in plans), *(plan.busiest for plan in even))
        plans = [plan for plan in plans if plan.busiest <= most * (1 + 1e-9)]
    return _write(_fastest(plans, size_bytes, parts), parts, bound)


def _fastest(plans: list[PortionPlan], size_bytes: int, parts: int) -> PortionPlan:
    """Find the plan that should be fastest for a size; of equals, one with the fewest levels.

    The estimate does not know how levels get in each other's way on links that they share.
    """
    if len(plans) == 1:
        return plans[0]
    seconds: dict[int, float] = {}
    for index in sorted(range(len(plans)), key=lambda index: plans[index].busiest):
        plan = plans[index]
        # Nothing is faster than its busiest link, and an estimate costs more than to know that one.
        if seconds and plan.busiest * size_bytes > _ALIKE * min(seconds.values()):
            break
        seconds[index] = estimate_seconds(plan, size_bytes, int(_cut_portions(plan, parts).max()))
    most = NEAR * min(seconds.values())
    equals = [(len(plans[index].kinds), time, index) for index, time in seconds.items() if time <= most]
    return plans[min(equals)[2]]


def _check_options(topology: Topology, shape: str, portions: str, parts: int, size_bytes: int | None) -> None:
    for name, value, known in (("shape", shape, _SHAPES), ("portions", portions, _PORTIONS)):
        if value not in known:
            msg = f"{_NAME}: {name}={value!r} is unknown, expected {', '.join(known[:-1])} or {known[-1]}"
            raise InputError(msg)
    check_count(_NAME, "parts", parts)
    if size_bytes is not None:
        check_count(_NAME, "size_bytes", size_bytes)
    # A portion for every rank, sent to all others and back: few plans get by with less.
    check_rows(_NAME, 2 * topology.ranks * (topology.ranks - 1))


def _find_forms(
    topology: Topology, shape: str, kinds: str | None
) -> list[tuple[ClusterPart, tuple[str, ...]]]:
    """Levels and how they exchange, as `shape` and `kinds` allow.

    Raises
    ------
    UnsupportedError
        If there are none.
    """
    forms = list_forms(topology, shape)
    if not forms:
        reason = f"{topology.name} has no levels: neither hosts nor switches divide its ranks"
        raise UnsupportedError(_NAME, reason, 'use shape="ring"')
    found = [form for form in forms if kinds in (None, ",".join(form[1]))]
    if not found:
        reason = f"kinds={kinds!r} does not fit {topology.name} with shape={shape!r}"
        known = " or ".join(dict.fromkeys(",".join(form[1]) for form in forms))
        raise UnsupportedError(_NAME, reason, f"use {known}")
    return found


def _even_plans(topology: Topology, forms: list[tuple[ClusterPart, tuple[str, ...]]]) -> list[PortionPlan]:
    """Even portions for each form; forms of the same levels cut the buffer alike."""
    plans: list[PortionPlan] = []
    for cluster, kinds in forms:
        alike = next((plan for plan in plans if plan.cluster is cluster), None)
        plans.append(replace(alike, kinds=kinds) if alike else _even_plan(topology, cluster, kinds))
    return plans


def _even_plan(topology: Topology, cluster: ClusterPart, kinds: tuple[str, ...]) -> PortionPlan:
    """Even portions; where groups of many sizes would cut the buffer too finely, nearly even."""
    shares = even_shares(cluster)
    each = 2 * (topology.ranks - 1)
    plan = make_plan(topology, cluster, kinds, shares)
    if len(plan.exchanges[-1].starts) * each > _MOST_ROWS and cluster.height > 1:
        widest = max(len(group.parts) for group in cluster.walk() if group is not cluster)
        grid = max(_MOST_ROWS // (each * len(cluster.parts)), 2 * widest)
        plan = make_plan(topology, cluster, kinds, shares, grid)
    check_rows(_NAME, len(plan.exchanges[-1].starts) * each)
    return plan


def _write(plan: PortionPlan, parts: int, bound: float) -> Schedule:
    """Spell a plan out as transfers."""
    top = plan.exchanges[-1]
    count = _cut_portions(plan, parts)
    position = np.argsort(np.array(plan.cluster.ranks))
    owner = position[np.array(top.holding.ranks)]
    # Each owner's chunks lie together; that is what makes halves possible.
    pieces = np.argsort(owner, kind="stable")
    chunk_piece = np.repeat(pieces, count[pieces])
    index = np.arange(len(chunk_piece)) - np.repeat(np.cumsum(count[pieces]) - count[pieces], count[pieces])
    delay = index * int(count.max()) // count[chunk_piece]
    weights = _whole_weights(top.lengths, count.tolist())
    builder = ScheduleBuilder(plan.topology, "all_reduce", _NAME, weights=weights[chunk_piece])
    turns = [0] * len(plan.kinds)
    for group in plan.cluster.walk():
        turns[group.height - 1] = max(turns[group.height - 1], len(group.parts) - 1)
    first = np.concatenate([[0], np.cumsum(turns)])
    apart, last = _order(plan, int(first[-1]), int(count.max()))
    delay *= apart
    for exchange in plan.exchanges:
        piece = np.repeat(exchange.find(plan.numbers)[pieces], count[pieces])
        src, dst = partners(plan.kind(exchange.group), exchange.holders[piece], exchange.keeper[piece])
        turn = first[exchange.group.height - 1] + np.arange(len(src))[:, None]
        chunk = np.broadcast_to(np.arange(len(piece)), src.shape)
        builder.add(step=turn + delay, chunk=chunk, src=src, dst=dst, op=Op.REDUCE)
        mirrored = last + int(first[-1]) - 1 - turn
        builder.add(step=mirrored + delay, chunk=chunk, src=dst, dst=src, op=Op.COPY)
    for note in _notes(plan, bound):
        builder.note(note)
    return builder.build()


def _order(plan: PortionPlan, turns: int, pieces: int) -> tuple[int, int]:
    """Steps between a piece and the next one, and the step at which the first is on its way back.

    Steps are what links go by when several messages wait. On one ring everything moves a hop per step, and
    no link ever waits. Elsewhere the oldest piece goes first, so that the links that are needed later have
    something to do soon. A direct exchange could send all of its pieces at once, and those on their way back
    would wait for them; without levels both halves therefore take turns, piece by piece. With levels that
    would keep the upper ones waiting.
    """
    if plan.kinds == (RING,):
        return 1, turns + pieces - 1
    return turns, turns if len(plan.kinds) == 1 else turns * pieces


def _cut_portions(plan: PortionPlan, parts: int) -> NDArray[np.int64]:
    """Chunks of each portion, in proportion to it: pieces of one size make progress side by side.

    One large chunk would still be on its way when all others are done, on links that then do nothing else.
    """
    lengths = plan.exchanges[-1].lengths
    most = max(_MOST_ROWS // (2 * (plan.topology.ranks - 1)), len(lengths))
    total = min(parts * max(len(lengths), plan.topology.ranks), most)
    return np.array([max(1, round(total * length)) for length in lengths], np.int64)


def _whole_weights(lengths: list[Fraction], count: list[int]) -> NDArray[np.int64]:
    """Weight of a chunk of each portion, exact as long as the common denominator allows it."""
    shares = [length / pieces for length, pieces in zip(lengths, count, strict=True)]
    common = math.lcm(*(share.denominator for share in shares))
    if common > np.iinfo(np.int64).max // 2:
        return np.array([max(1, round(share * _LARGEST_WEIGHT)) for share in shares], np.int64)
    return np.array([int(share * common) for share in shares], np.int64)


def _notes(plan: PortionPlan, bound: float) -> Iterator[str]:
    levels = f"{len(plan.kinds)} levels, lowest first" if len(plan.kinds) > 1 else "1 level"
    yield f"{levels}: {', '.join(plan.kinds)}"
    owned: dict[int, Fraction] = {}
    top = plan.exchanges[-1]
    for rank, length in zip(top.holding.ranks, top.lengths, strict=True):
        owned[rank] = owned.get(rank, 0 * length) + length
    shares = set(owned.values())
    others = plan.topology.ranks - len(owned)
    none = f", none for {others} of the ranks" if others else ""
    if len(shares) == 1:
        yield f"portions: {next(iter(shares))} each{none}"
    else:
        yield f"portions: from {float(min(shares)):.4f} to {float(max(shares)):.4f} of the buffer{none}"
    yield f"busiest link: {plan.busiest / bound:.3f} times the proven least"
