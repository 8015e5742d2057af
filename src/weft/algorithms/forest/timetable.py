"""When each transfer of a forest happens, and the schedule that follows.

Time is cut into ticks. A chunk holds a link for as many ticks as it takes, and no link carries two chunks at
once. `make_timetable` starts from trees that load the links evenly and packs their transfers as tightly as it
can, growing trees anew where a free slot suggests another parent; its C++ half,
``cpp/synthesis/timetable.cpp``, says how. On networks whose links are all alike a tick is the time of one
chunk on one link, and the number of ticks can be held against the load of the busiest link: no timetable is
shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core
from weft.bounds.tree_columns import TreeColumns
from weft.columns import row_order
from weft.schedule import Op, Schedule
from weft.schedule.chunks import make_condition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

_FINEST: Final = 8
"""Ticks of the fastest link up to which speeds are told apart better."""

_CLOSE: Final = 0.04
"""Error of a link's ticks that is not worth a finer tick."""

_LONGEST: Final = 256
"""Ticks of the slowest link at most: the timetable of all ticks and links must fit into memory."""

_GOOD_ENOUGH: Final = 0.002
"""Ticks beyond those of the busiest link, as a fraction, that are not worth another pass."""

_PATIENCE: Final = 40
"""Passes without gain that end the search."""


@dataclass(frozen=True, slots=True, eq=False)
class Timetable:
    """Trees, and the tick at which each of their transfers starts.

    Parameters
    ----------
    trees
        The trees, possibly others than those it was made from.
    up_start, down_start
        Row t, column r: first tick of the transfer from rank r to its parent in tree t, and from its parent
        to it; -1 where there is none.
    ticks
        When the last transfer has arrived.
    """

    trees: TreeColumns
    up_start: NDArray[np.int32]
    down_start: NDArray[np.int32]
    ticks: int


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """How long things take, in ticks.

    Parameters
    ----------
    duration, latency
        Of a chunk on each link, and of each link.
    """

    duration: NDArray[np.int32]
    latency: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What a schedule is for, and who made it.

    Parameters
    ----------
    collective, root
        As `weft.schedule.chunks.make_condition` takes them.
    algorithm, notes
        For the reader.
    owner
        Owner of each chunk, in equal shards, for reduce_scatter and all_gather.
    """

    collective: str
    algorithm: str
    root: int = 0
    owner: NDArray[np.int32] | None = None
    notes: tuple[str, ...] = ()


def make_clock(topology: Topology, chunk_bytes: float | None = None) -> Clock:
    """Ticks for the links of a topology.

    Parameters
    ----------
    topology
        The cluster.
    chunk_bytes
        Size of a chunk, to weigh latencies against. Without it every link has a latency of the shortest
        transfer: room enough that chunks large enough to care about bandwidth are not late for their next
        link.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> make_clock(load_topology("dgx-h100:2")).duration.tolist()[-2:]
    [9, 9]
    """
    speed = topology.bandwidth.astype(np.float64)
    ratio = float(speed.max() / speed.min())
    for per_fastest in range(1, _FINEST + 1):
        exact = per_fastest * speed.max() / speed
        if float(np.abs(np.rint(exact) / exact - 1).max()) <= _CLOSE:
            break
    slowest = min(per_fastest * ratio, _LONGEST)
    duration = np.maximum(1, np.rint(slowest * speed.min() / speed)).astype(np.int32)
    if chunk_bytes is None:
        latency = np.full(topology.links, duration.min(), np.int32)
    else:
        tick_ps = chunk_bytes * 1e12 / speed.min() / slowest
        late = np.ceil(topology.latency_ps / max(tick_ps, 1e-9))
        latency = np.minimum(late, _LONGEST).astype(np.int32)
    return Clock(duration, latency)


def make_timetable(
    topology: Topology, trees: TreeColumns, clock: Clock, *, passes: int, alternatives: int = 8, seed: int = 1
) -> Timetable:
    """Fit all transfers of some trees into as few ticks as possible.

    Parameters
    ----------
    topology, trees, clock
        What to fit, one chunk of equal size to each tree.
    passes
        How often to go over all transfers, alternately forward and backward in time.
    alternatives
        How many other parents to look at for each transfer; 0 keeps the trees as they are.
    seed
        Decides ties.
    """
    floor = busiest_ticks(topology, trees, clock)
    ticks, up_start, down_start, root, up, down, offsets, links = _core.schedule_trees(
        nodes=topology.nodes,
        ranks=topology.ranks,
        src=topology.link_src,
        dst=topology.link_dst,
        root=trees.root,
        up=trees.up.ravel(),
        down=trees.down.ravel(),
        route_offsets=trees.route_offsets,
        route_links=trees.route_links,
        duration=clock.duration,
        latency=clock.latency,
        passes=passes,
        patience=_PATIENCE,
        alternatives=alternatives,
        good_enough=floor + math.floor(floor * _GOOD_ENOUGH),
        seed=seed,
    )
    shape = trees.up.shape
    grown = TreeColumns(root, up.reshape(shape), down.reshape(shape), offsets, links)
    return Timetable(grown, up_start.reshape(shape), down_start.reshape(shape), ticks)


def busiest_ticks(topology: Topology, trees: TreeColumns, clock: Clock) -> int:
    """Ticks that the busiest link is held by all trees together: no timetable of these trees is shorter."""
    return int((trees.count_links(topology.links).sum(axis=0) * clock.duration).max(initial=0))


def make_schedule(topology: Topology, timetable: Timetable, condition: Condition) -> Schedule:
    """Schedule that follows a timetable: tree t carries chunk t, and every tick with a start is a step.

    Parameters
    ----------
    topology
        The cluster.
    timetable
        Trees and start ticks.
    condition
        What the trees are for.
    """
    trees = timetable.trees
    parts = [
        _rows(topology, trees, trees.up, timetable.up_start, Op.REDUCE),
        _rows(topology, trees, trees.down, timetable.down_start, Op.COPY),
    ]
    start, src, dst, op, route, chunk = (np.concatenate(column) for column in zip(*parts, strict=True))
    step = np.unique(start, return_inverse=True)[1].astype(np.int32)
    columns = [step, src, dst, op.astype(np.int32), route, chunk]
    order = row_order(columns)
    if order is not None:
        step, src, dst, op, route, chunk = (column[order] for column in (step, src, dst, op, route, chunk))
    source, target = make_condition(
        condition.collective, topology.ranks, len(trees), owner=condition.owner, root=condition.root
    )
    return Schedule(
        topology=topology,
        collective=condition.collective,
        algorithm=condition.algorithm,
        weights=np.ones(len(trees), np.int64),
        denominator=len(trees),
        source=source,
        target=target,
        ownership="none" if condition.owner is None else "prescribed",
        step=step,
        chunk=chunk,
        src=src,
        dst=dst,
        op=op,
        route=route,
        route_offsets=trees.route_offsets,
        route_links=trees.route_links,
        notes=condition.notes,
    )


def _rows(
    topology: Topology, trees: TreeColumns, half: NDArray[np.int32], starts: NDArray[np.int32], op: Op
) -> tuple[NDArray[Any], ...]:
    """Start, src, dst, op, route and chunk of the transfers of one half of all trees."""
    tree, rank = np.nonzero(half >= 0)
    route = half[tree, rank]
    src = topology.link_src[trees.route_links[trees.route_offsets[route]]]
    dst = topology.link_dst[trees.route_links[trees.route_offsets[route + 1] - 1]]
    kind = np.full(len(tree), op, np.uint8)
    return starts[tree, rank], src, dst, kind, route, tree.astype(np.int32)
