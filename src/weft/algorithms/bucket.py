"""The bucket algorithm on a torus or mesh of any dimension, with every link at work.

One part of the buffer is gathered along one axis after the other: first each rank's shard along the first
axis, then what a line of ranks gathered along the second, and so on. That keeps one axis busy at a time,
so the buffer is cut into parts that take the axes in different orders and rings in opposite directions. A
wrapped axis is a ring that a part goes round one way. An open axis is a line, and a part spreads along it
both ways at once: the link into the end of a line must carry all the others' shards in any case, so no
other way is faster.

On a torus of equal sides the parts are equal. Otherwise an axis that is long, slow or open would be the
last to finish: a small linear programme weighs the parts so that the busiest link is busy for the
shortest time.

References
----------
.. [1] N. Jain and Y. Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
   interconnects", ICS 2010.
.. [2] P. Sack and W. Gropp, "Collective algorithms for multiported torus networks", ACM TOPC 1 (2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.algorithms.common.blocks import Blocks
from weft.algorithms.common.grids import AHEAD, WAYS, Axis, check_whole, grid_axes
from weft.algorithms.common.shares import balance_shares
from weft.schedule import Op, ScheduleBuilder
from weft.schedule.ir import DEFAULT_ROUTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME: Final = "bucket"
_INSTEAD: Final = "use ring"

VARIANTS: Final = ({"halfway": True},)
"""Further options that `weft.plan` tries."""


def all_reduce(topology: Topology, *, halfway: bool = False) -> Schedule:
    """Sum every rank's buffer at every rank, along all axes of a grid at once.

    Parameters
    ----------
    topology
        A mesh or torus with all its links.
    halfway
        On wrapped axes send half the way round in both directions instead of all the way in one: the same
        bytes on each link in half the steps.

    Returns
    -------
    Schedule
        Chunks are numbered so that each message is one run of chunks; an owner's chunks lie apart.

    Raises
    ------
    UnsupportedError
        If the topology is not a grid, or has lost a link.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4"))
    <Schedule bucket all_reduce on torus:4x4: 64 chunks, 12 steps, 1920 transfers>

    Notes
    -----
    Cost: 2 sum(n_i - 1) steps (`halfway`: 2 sum(floor(n_i / 2)) on a torus). On a torus of D sides of n each
    link carries 2(N-1)/N / 2D of the buffer. On a mesh each link carries n/(n-1) (N-1)/N / D, although in
    either half alone the links at corners carry (N-1)/N / D: there the two halves gain from overlapping. No
    algorithm with an equal shard for each rank puts less on the busiest link of either half.
    """
    return _bucket(topology, "all_reduce", (Op.REDUCE, Op.COPY), halfway)


def reduce_scatter(topology: Topology, *, halfway: bool = False) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters
    ----------
    topology
        A mesh or torus with all its links.
    halfway
        As in `all_reduce`.

    Returns
    -------
    Schedule
        One chunk per rank and part, with prescribed ownership.

    Raises
    ------
    UnsupportedError
        If the topology is not a grid, or has lost a link.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("mesh:3x5")).steps
    6

    Notes
    -----
    Cost: sum(n_i - 1) steps; half the bytes of `all_reduce`.
    """
    return _bucket(topology, "reduce_scatter", (Op.REDUCE,), halfway)


def all_gather(topology: Topology, *, halfway: bool = False) -> Schedule:
    """Hand every rank's shard to every rank.

    Parameters, result, errors and cost are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:4x8")).notes
    ('parts: axes 0,1 17/84 + 17/84; axes 1,0 25/84 + 25/84',)
    """
    return _bucket(topology, "all_gather", (Op.COPY,), halfway)


@dataclass(frozen=True, slots=True)
class _Part:
    """A share of the buffer: the axes it takes in turn, its way round wrapped ones, its lane."""

    order: tuple[int, ...]
    way: int
    lane: int
    share: int


def _bucket(topology: Topology, collective: str, rounds: tuple[Op, ...], halfway: bool) -> Schedule:
    ranks = topology.ranks
    rows = len(rounds) * ranks * (ranks - 1)
    limits.check(f"{_NAME}: transfers of one part", rows, limits.MAX_TRANSFERS)
    axes = grid_axes(topology, _NAME, _INSTEAD)
    lanes = check_whole(axes, _NAME, _INSTEAD)
    parts = _make_parts(topology, axes, lanes, both=len(rounds) == 2, halfway=halfway)
    limits.check(f"{_NAME}: transfers", rows * len(parts), limits.MAX_TRANSFERS)
    shares = np.array([part.share for part in parts])
    owned = collective != "all_reduce"
    weights = np.tile(shares, ranks) if owned else np.repeat(shares, ranks)
    builder = ScheduleBuilder(topology, collective, _NAME, chunks=ranks * len(parts), weights=weights)
    routes = _route_numbers(builder, axes, lanes)
    blocks = Blocks()
    for index, part in enumerate(parts):
        for number, op in enumerate(rounds):
            _add_phase(blocks, axes, part, op, number, routes[part.lane], index * ranks, halfway)
    owners = [np.argsort(_local_numbers(axes, part.order)) for part in parts]
    blocks.write(builder, owners if owned else ())
    builder.note(_describe(parts))
    return builder.build()


def _add_phase(
    blocks: Blocks,
    axes: list[Axis],
    part: _Part,
    op: Op,
    number: int,
    routes: dict[tuple[int, int], NDArray[np.int64]],
    start: int,
    halfway: bool,
) -> None:
    """One part's all-gather; or its reduce-scatter, which is one that goes the other way, run backwards."""
    leading = -part.way if op == Op.REDUCE else part.way
    reaches = {index: _reach(axes[index], leading, halfway) for index in part.order}
    steps = sum(max(reach.values()) for reach in reaches.values())
    rest = _local_numbers(axes, part.order)
    begin, stride = 0, 1
    for index, reach in reaches.items():
        axis = axes[index]
        rest = rest - axis.at * stride
        for way, hops in reach.items():
            for behind in range(hops):
                digit = axis.at - way * behind
                inside = axis.wrap | ((axis.following[way] >= 0) & (digit >= 0) & (digit < axis.size))
                src = np.flatnonzero(inside)
                first = start + rest[src] + digit[src] % axis.size * stride
                dst, taken, step = axis.following[way][src], way, begin + behind
                if op == Op.REDUCE:
                    src, dst, taken, step = dst, src, -way, steps - 1 - step
                blocks.add(
                    step=number * steps + step,
                    src=src,
                    dst=dst,
                    op=op,
                    route=routes[index, taken][src],
                    first=first,
                    count=stride,
                )
        begin += max(reach.values())
        stride *= axis.size


def _reach(axis: Axis, way: int, halfway: bool) -> dict[int, int]:
    """How many hops a shard goes along an axis in either direction."""
    if not axis.wrap:
        return dict.fromkeys(WAYS, axis.size - 1)
    if halfway:
        return {way: axis.size // 2, -way: (axis.size - 1) // 2}
    return {way: axis.size - 1, -way: 0}


def _local_numbers(axes: list[Axis], order: tuple[int, ...]) -> NDArray[np.int64]:
    """Give each rank's chunk a number within a part: what is gathered together is consecutive."""
    number = np.zeros_like(axes[0].at)
    stride = 1
    for index in order:
        number = number + axes[index].at * stride
        stride *= axes[index].size
    return number


def _route_numbers(
    builder: ScheduleBuilder, axes: list[Axis], lanes: int
) -> list[dict[tuple[int, int], NDArray[np.int64]]]:
    """Explicit route of each rank's next hop, for each lane; the network's own where cables are single."""
    topology = builder.topology
    pairs = set(zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True))
    single = len(pairs) == topology.links
    numbers: list[dict[tuple[int, int], NDArray[np.int64]]] = []
    for lane in range(lanes):
        numbers.append({})
        for index, axis in enumerate(axes):
            for way in WAYS:
                links = axis.lane(way, lane).tolist()
                routes = [DEFAULT_ROUTE if single or link < 0 else builder.route((link,)) for link in links]
                numbers[lane][index, way] = np.array(routes, np.int64)
    return numbers


def _make_parts(
    topology: Topology, axes: list[Axis], lanes: int, *, both: bool, halfway: bool
) -> list[_Part]:
    ways = WAYS if any(axis.wrap for axis in axes) else (AHEAD,)
    channels = [(way, lane) for way in ways for lane in range(lanes)]
    orders = _axis_orders(len(axes))
    seconds = _seconds_per_shard(topology, axes, lanes, both=both)
    pairs = [(order, channel) for order in orders for channel in channels]
    if all(len(set(one.values())) == 1 for one in seconds):
        each = _shares_of_orders(axes, orders, [one[AHEAD, 0] for one in seconds])
        shares = [share / len(channels) for share in each for _ in channels]
    else:
        resources = [
            (index, way, lane) for index in range(len(axes)) for way in WAYS for lane in range(lanes)
        ]
        busy = np.zeros((len(resources), len(pairs)))
        for column, (order, (way, lane)) in enumerate(pairs):
            stride = 1
            for index in order:
                reach = _reach(axes[index], way, halfway)
                for turn in WAYS:
                    hops = reach[turn] if axes[index].wrap else 1
                    busy[resources.index((index, turn, lane)), column] = (
                        stride * hops * seconds[index][turn, lane]
                    )
                stride *= axes[index].size
        shares = balance_shares(busy)
    common = math.lcm(*(share.denominator for share in shares))
    chosen = [(pair, int(share * common)) for pair, share in zip(pairs, shares, strict=True) if share]
    return [_Part(order, way, lane, share) for (order, (way, lane)), share in chosen]


def _axis_orders(count: int) -> list[tuple[int, ...]]:
    """All orders of a few axes, starting with the rotations; of many axes only the rotations, either way."""
    forward = tuple(range(count))
    rotations = [forward[k:] + forward[:k] for k in forward]
    more = permutations(forward) if count <= 4 else [order[::-1] for order in rotations]
    return list(dict.fromkeys([*rotations, *more]))


def _seconds_per_shard(
    topology: Topology, axes: list[Axis], lanes: int, *, both: bool
) -> list[dict[tuple[int, int], float]]:
    """For each axis, way and lane: time per byte of a shard, per hop on a ring, or on a whole line.

    Gathering along a line puts shards 0..i on the link ahead of place i, and shards i and above on the link
    back. Reducing does it the other way round, so that in an all-reduce (`both`) every link of a line carries
    the same.
    """
    found: list[dict[tuple[int, int], float]] = []
    for axis in axes:
        found.append({})
        for way in WAYS:
            carried = (axis.at + 1 if way == AHEAD else axis.size - axis.at).astype(np.float64)
            if axis.wrap:
                carried[:] = 1
            elif both:
                carried[:] = axis.size / 2
            for lane in range(lanes):
                links = axis.lane(way, lane)
                busy = np.where(links < 0, 0, carried) / topology.bandwidth[links]
                found[-1][way, lane] = float(busy.max())
    return found


def _shares_of_orders(
    axes: list[Axis], orders: list[tuple[int, ...]], seconds: list[float]
) -> list[Fraction]:
    """Share of each axis order where all ways and lanes of an axis are equally fast."""
    if len({(axis.size, axis.wrap, one) for axis, one in zip(axes, seconds, strict=True)}) == 1:
        return [Fraction(int(index < len(axes)), len(axes)) for index in range(len(orders))]
    busy = np.zeros((len(axes), len(orders)))
    for column, order in enumerate(orders):
        stride = 1
        for index in order:
            # The two ways round a ring take half of it each.
            hops = (axes[index].size - 1) / 2 if axes[index].wrap else 1
            busy[index, column] = stride * hops * seconds[index]
            stride *= axes[index].size
    return balance_shares(busy)


def _describe(parts: list[_Part]) -> str:
    total = sum(part.share for part in parts)
    if len(parts) > 16:
        return f"{len(parts)} parts"
    by_order: dict[tuple[int, ...], list[_Part]] = {}
    for part in parts:
        by_order.setdefault(part.order, []).append(part)
    texts = []
    for order, members in by_order.items():
        shares = " + ".join(str(Fraction(part.share, total)) for part in members)
        texts.append(f"axes {','.join(map(str, order))} {shares}")
    return f"parts: {'; '.join(texts)}"
