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
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import _core
from weft.bounds.tree_columns import TreeColumns
from weft.schedule import Op

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule, ScheduleBuilder
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

_ALTERNATIVES: Final = 8
"""Other parents to look at for each transfer."""

_SEED: Final = 1
"""Decides ties."""


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
    >>> make_clock(load_topology("dgx-h100:2@fabric=flat")).duration.tolist()[-2:]
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


def make_timetable(topology: Topology, trees: TreeColumns, clock: Clock, *, passes: int) -> Timetable:
    """Fit all transfers of some trees into as few ticks as possible.

    Parameters
    ----------
    topology, trees, clock
        What to fit, one chunk of equal size to each tree.
    passes
        How often to go over all transfers, alternately forward and backward in time.
    """
    floor = busiest_ticks(topology, trees, clock)
    ends = (topology.link_src, topology.link_dst)
    return fit_routes(topology.nodes, *ends, trees, clock, floor=floor, passes=passes)


def fit_routes(
    nodes: int,
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    trees: TreeColumns,
    clock: Clock,
    *,
    floor: int,
    passes: int,
) -> Timetable:
    """Do what `make_timetable` does, on links from `src` to `dst`; none is shorter than `floor` ticks."""
    ticks, up_start, down_start, root, up, down, offsets, links = _core.schedule_trees(
        nodes=nodes,
        ranks=trees.up.shape[1],
        src=src,
        dst=dst,
        root=trees.root,
        up=trees.up.ravel(),
        down=trees.down.ravel(),
        route_offsets=trees.route_offsets,
        route_links=trees.route_links,
        duration=clock.duration,
        latency=clock.latency,
        passes=passes,
        patience=_PATIENCE,
        alternatives=_ALTERNATIVES,
        good_enough=floor + math.floor(floor * _GOOD_ENOUGH),
        seed=_SEED,
    )
    shape = trees.up.shape
    grown = TreeColumns(root, up.reshape(shape), down.reshape(shape), offsets, links)
    return Timetable(grown, up_start.reshape(shape), down_start.reshape(shape), ticks)


def busiest_ticks(topology: Topology, trees: TreeColumns, clock: Clock) -> int:
    """Ticks that the busiest link is held by all trees together: no timetable of these trees is shorter."""
    return int((trees.count_links(topology.links).sum(axis=0) * clock.duration).max(initial=0))


def make_schedule(builder: ScheduleBuilder, timetable: Timetable) -> Schedule:
    """Schedule that follows a timetable: tree t carries chunk t, and every tick with a start is a step.

    Parameters
    ----------
    builder
        What the trees are for, with a chunk to each.
    timetable
        Trees and start ticks.
    """
    topology, trees = builder.topology, timetable.trees
    halves = ((trees.up, timetable.up_start, Op.REDUCE), (trees.down, timetable.down_start, Op.COPY))
    ticks = np.unique(np.concatenate([starts[half >= 0] for half, starts, _ in halves]))
    for half, starts, op in halves:
        tree, rank = np.nonzero(half >= 0)
        route = half[tree, rank]
        builder.add(
            step=np.searchsorted(ticks, starts[tree, rank]),
            chunk=tree,
            src=topology.link_src[trees.route_links[trees.route_offsets[route]]],
            dst=topology.link_dst[trees.route_links[trees.route_offsets[route + 1] - 1]],
            op=op,
            route=route,
        )
    return builder.build((trees.route_offsets, trees.route_links))
