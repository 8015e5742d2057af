"""Forests on networks that look alike from all ranks: few trees, and copies of them for all other ranks.

Copies load links that are alike evenly (`weft.bounds.rotations`). So all of them may begin at once, as in a
reduce-scatter followed by an all-gather, and one timetable serves all: that of the few trees, on a network in
which links that are alike are one link. No pipeline has to fill, and trees are as shallow as they like.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.forest.timetable import Clock, Timetable, fit_routes, make_clock
from weft.bounds.rotations import find_orbits, find_rotations
from weft.bounds.tree_columns import TreeColumns, grow_trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bounds.rotations import Rotation
    from weft.topology import Topology

_DEPTH_PRICES: Final = (0.8, 0.6, 0.4, 0.2, 0.1, 0.05)
"""Prices of depth that are tried; what counts is the length of the timetable."""

_DIFFERENT: Final = 4
"""Trees at most that are no copies: while one waits for its last sums, links carry the others."""

_PASSES: Final = 24
_MIDDLING_BYTES: Final = 64 << 20
"""Passes over a timetable, and the buffer that it leaves room for latency for, unless another is named."""


def make_rotated(
    topology: Topology, roots: NDArray[np.int32], most: int, size_bytes: int | None
) -> tuple[Timetable, int] | None:
    """Make trees with a timetable, and count the ticks of the busiest link; None without rotations.

    Parameters
    ----------
    topology, roots
        Where, and the ranks at which the first trees may begin.
    most
        Trees at most, copies included.
    size_bytes
        The buffer to make them for, if it is known.
    """
    rotations = find_rotations(topology)
    copies = math.prod(rotation.order for rotation in rotations)
    if not rotations or copies > most:
        return None
    each = min(most // copies, _DIFFERENT)
    clock = make_clock(topology, (size_bytes or _MIDDLING_BYTES) / (each * copies))
    alike = find_orbits(rotations, topology.links)
    tried = []
    for price in _DEPTH_PRICES:
        trees = grow_trees(topology, roots, (True, True), each, 0, price)[0]
        tried.append(_fit_together(topology, trees, clock, alike, copies))
    timetable, busiest = min(tried, key=lambda found: found[0].ticks)
    for rotation in rotations:
        timetable = _copy(timetable, rotation)
    return timetable, busiest


def _fit_together(
    topology: Topology, trees: TreeColumns, clock: Clock, alike: NDArray[np.int64], copies: int
) -> tuple[Timetable, int]:
    """Timetable of trees whose copies all move at the same time, and the ticks of the busiest link.

    Links that are alike become one, which a transfer with all its copies holds for as long as these take to
    share the links. A link of its own for each rank begins and ends every route, to tell where it leads.
    """
    ranks, kinds = topology.ranks, int(alike.max()) + 1
    first = np.unique(alike, return_index=True)[1]
    sharing = -(-copies // np.bincount(alike))
    # Nodes are the ranks and one more, which every link that stands for some leads from and to.
    middle, every = np.full(kinds, ranks), np.arange(ranks)
    src = np.concatenate([middle, every, np.full(ranks, ranks)]).astype(np.int32)
    dst = np.concatenate([middle, np.full(ranks, ranks), every]).astype(np.int32)
    duration = np.append(clock.duration[first] * sharing, np.ones(2 * ranks)).astype(np.int32)
    latency = np.append(clock.latency[first], np.zeros(2 * ranks)).astype(np.int32)
    starts, ends = trees.route_offsets[:-1], trees.route_offsets[1:]
    leave = kinds + topology.link_src[trees.route_links[starts]]
    arrive = kinds + ranks + topology.link_dst[trees.route_links[ends - 1]]
    where: NDArray[np.int64] = np.stack((starts, ends), axis=1).ravel()
    links = np.insert(alike[trees.route_links], where, np.stack((leave, arrive), axis=1).ravel())
    offsets = trees.route_offsets + 2 * np.arange(len(trees.route_offsets))
    load = np.bincount(alike, trees.count_links(topology.links).sum(axis=0)) * duration[:kinds]
    kind_trees = TreeColumns(trees.root, trees.up, trees.down, offsets, links.astype(np.int32))
    fitted = fit_routes(
        ranks + 1, src, dst, kind_trees, Clock(duration, latency), floor=int(load.max()), passes=_PASSES
    )
    grown = replace(fitted.trees, route_offsets=trees.route_offsets, route_links=trees.route_links)
    return replace(fitted, trees=grown), int(load.max())


def _copy(timetable: Timetable, rotation: Rotation) -> Timetable:
    """A timetable with all copies of its trees, which start when these do."""
    trees = rotation.copy_trees(timetable.trees)
    starts = []
    for start in (timetable.up_start, timetable.down_start):
        moved = np.empty((len(start), rotation.order, start.shape[1]), np.int32)
        to: NDArray[np.int64] = np.arange(start.shape[1])
        for turn in range(rotation.order):
            moved[:, turn, to] = start
            to = rotation.ranks[to].astype(np.int64)
        starts.append(moved.reshape(-1, start.shape[1]))
    return Timetable(trees, starts[0], starts[1], timetable.ticks)
