"""How MultiTree's trees grow: who adds which edge in which step.

One step uses each link once (a fast link several times, `weft.algorithms.multitree.link_speeds` says which),
and a rank passes on only what it had before the step. Within these rules there are three ways, all written in
C++:

by turns
    The trees add one edge each, in turns, from their earliest member that can: the paper's own rule. Trees
    come out as flat as the network allows, and on fat-trees and BiGraph no way takes fewer steps.
by symmetry
    On tori, hypercubes and other networks that look alike from every rank, one tree is grown and all others
    are the same tree moved. If the tree makes each move of the network once per step, no two of them ever
    meet. A matching fills the moves, so that a step is left short only where it must be.
by need
    Each step fills the links into every rank with as many trees as can be, again by a matching, those that
    are behind first. Over switches, a tree that is new to a whole group of ranks takes the way in before one
    that the group could spread by itself: what crosses a thin uplink crosses it once.

`grow_trees` takes the first of them that needs the fewest steps. Where links differ in speed it does so for
several choices of links, and keeps the one that takes the least time. The C++ half is
``cpp/synthesis/multitree_growth.hpp``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft import _core
from weft.algorithms.multitree.link_speeds import use_all, ways_to_use
from weft.bounds.distances import longest_path
from weft.bounds.node_sets import membership, own_switches
from weft.topology.listing import listing_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft.algorithms.multitree.link_speeds import Usage
    from weft.topology import Topology

_TRIES: Final = 4
"""Seeds of growth by need: steps differ by one or two."""

LARGE: Final = 1 << 16
"""From so many edges on, one seed must do, and both halves of an all-reduce may use the same trees."""

_WORTH: Final = 1.01
"""Slower links and finer units must bring this much: the more chunks in a step, the vaguer its length."""


class Trees(NamedTuple):
    """Edges, in order of steps: `tree` grows from `parent` to `child` along a row of the route table."""

    step: NDArray[np.int32]
    tree: NDArray[np.int32]
    parent: NDArray[np.int32]
    child: NDArray[np.int32]
    route: NDArray[np.int32]
    route_offsets: NDArray[np.int64]
    route_links: NDArray[np.int32]
    way: str
    usage: Usage

    @property
    def steps(self) -> int:
        """How many steps the all-gather takes."""
        return int(self.step[-1]) + 1

    def lockstep_seconds(self, bandwidth: NDArray[np.int64]) -> float:
        """Time of an all-gather of one byte per tree, links of these speeds: each step waits for the last."""
        length = np.diff(self.route_offsets)[self.route]
        ends = np.cumsum(length)
        inside = np.arange(ends[-1]) - np.repeat(ends - length, length)
        link = self.route_links[np.repeat(self.route_offsets[self.route], length) + inside]
        steps = np.split(link, ends[np.flatnonzero(np.diff(self.step))])
        return sum(float((np.bincount(part, minlength=len(bandwidth)) / bandwidth).max()) for part in steps)


def grow_trees(topology: Topology, trees_per_root: int, *, paper_order: bool = False) -> Trees:
    """Grow spanning trees from every rank.

    Parameters
    ----------
    topology
        Any.
    trees_per_root
        Tree t is rooted at rank ``t // trees_per_root``.
    paper_order
        Grow by turns, in the authors' order, over all links.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> for spec in ("torus:8x8", "fattree:16", "hosts:8,4,2"):
    ...     trees = grow_trees(load_topology(spec), 1)
    ...     print(spec, trees.way, trees.steps)
    torus:8x8 by symmetry 16
    fattree:16 by turns 15
    hosts:8,4,2 by need 15
    """
    if paper_order:
        return _grow_by_turns(use_all(topology), trees_per_root, paper_order=True)
    first, *others = ways_to_use(topology, fine=_edges(topology, trees_per_root) < LARGE)
    best = _grow_over(first, trees_per_root)
    if not others:
        return best
    seconds = best.lockstep_seconds(topology.bandwidth)
    for usage in others:
        if trees_per_root * usage.least_seconds > seconds / _WORTH:
            continue
        trees = _grow_over(usage, trees_per_root)
        if trees.lockstep_seconds(topology.bandwidth) <= seconds / _WORTH:
            best, seconds = trees, trees.lockstep_seconds(topology.bandwidth)
    return best


def fewest_steps(usage: Usage, trees_per_root: int = 1) -> int:
    """Steps that no way to grow can go below, though it may not be possible to reach them.

    Every rank must be entered by all foreign trees, every group by those from outside, and no tree is
    complete before it reached the farthest rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [fewest_steps(use_all(load_topology(spec))) for spec in ("torus:8x8", "mesh:4x4", "hosts:8,4,2")]
    [16, 8, 13]
    """
    topology = usage.topology
    into = np.bincount(topology.link_dst, usage.capacity, topology.nodes)[: topology.ranks]
    least = math.ceil(trees_per_root * (topology.ranks - 1) / int(into.min()))
    entrances = _Entrances.of(usage)
    if entrances is not None:
        outside = trees_per_root * (topology.ranks - entrances.ranks)
        least = max(least, math.ceil(float((outside / entrances.inward).max())))
    if not topology.direct:
        return least
    everyone = np.arange(topology.ranks)
    hops = replace(topology, latency_ps=np.ones(topology.links, np.int64))
    return max(least, longest_path(hops, everyone, everyone).latency_ps)


def _grow_over(usage: Usage, trees_per_root: int) -> Trees:
    """Trees of the way that takes the fewest steps."""
    least = fewest_steps(usage, trees_per_root)
    best = None
    for trees in _grow_in_turn(usage, trees_per_root):
        if best is None or trees.steps < best.steps:
            best = trees
        if best.steps <= least:
            break
    assert best is not None, "there is always a way"
    return best


def _grow_in_turn(usage: Usage, trees_per_root: int) -> Iterator[Trees]:
    topology = usage.topology
    large = _edges(topology, trees_per_root) >= LARGE
    if topology.direct:
        shapes = [topology.grid.shape] if topology.grid else []
        for shape in (*shapes, (topology.ranks,)):
            trees = _grow_by_symmetry(usage, trees_per_root, shape)
            if trees is not None:
                yield trees
                if large:
                    return
                break
    entrances = _Entrances.of(usage)
    # Turns waste thin uplinks on trees that are inside already, and take long to do so.
    if entrances is None or bool((entrances.inward >= entrances.wanted).all()):
        yield _grow_by_turns(usage, trees_per_root)
    for seed in range(1 if large else _TRIES):
        yield _grow_by_need(usage, trees_per_root, seed)


def _edges(topology: Topology, trees_per_root: int) -> int:
    return topology.ranks * trees_per_root * (topology.ranks - 1)


def _grow_by_turns(usage: Usage, trees_per_root: int, *, paper_order: bool = False) -> Trees:
    topology = usage.topology
    order = listing_order(topology)
    columns = _core.grow_multitree_by_turns(
        topology.nodes,
        topology.ranks,
        topology.ranks * trees_per_root,
        topology.link_src[order],
        topology.link_dst[order],
        usage.capacity[order],
        np.repeat(_root_priority(topology), trees_per_root),
        paper_order,
    )
    return Trees(*columns[:-1], usage.links[order[columns[-1]]], "by turns", usage)


def _grow_by_need(usage: Usage, trees_per_root: int, seed: int) -> Trees:
    topology = usage.topology
    group = np.arange(topology.ranks, dtype=np.int32)
    for members in topology.groups:
        group[list(members)] = members[0]
    columns = _core.grow_multitree_by_need(
        topology.nodes,
        topology.ranks,
        topology.ranks * trees_per_root,
        topology.link_src,
        topology.link_dst,
        usage.capacity,
        group,
        seed,
    )
    return Trees(*columns[:-1], usage.links[columns[-1]], "by need", usage)


def _grow_by_symmetry(usage: Usage, trees_per_root: int, shape: tuple[int, ...]) -> Trees | None:
    """Trees for ranks on a wrapped grid of this shape; None if the network does not look alike from each."""
    topology, capacity = usage.topology, usage.capacity
    src, dst = (np.stack(np.unravel_index(end, shape)) for end in (topology.link_src, topology.link_dst))
    move = np.ravel_multi_index(tuple((dst - src) % np.array(shape)[:, None]), shape)
    counts = np.bincount(move)
    if bool((counts % topology.ranks).any()):
        return None
    # By move, then by rank, faster ones of parallel links first: each move is a block of equal rows.
    order = np.lexsort((-capacity, topology.link_src, move)).astype(np.int32)
    moves, speeds, blocks = [], [], []
    for to, block in zip(
        np.flatnonzero(counts), np.split(order, np.cumsum(counts[counts > 0])[:-1]), strict=True
    ):
        rows = block.reshape(topology.ranks, -1)
        alike = (capacity[rows] == capacity[rows[0]]).all()
        if not alike or (topology.link_src[rows] != np.arange(topology.ranks)[:, None]).any():
            return None
        moves += [to] * rows.shape[1]
        speeds.append(capacity[rows[0]])
        blocks.append(rows.T.ravel())
    columns = _core.grow_multitree_by_symmetry(
        topology.ranks,
        topology.ranks * trees_per_root,
        np.array(shape, np.int64),
        np.array(moves, np.int32),
        np.concatenate(speeds),
        np.concatenate(blocks),
    )
    return Trees(*columns[:-1], usage.links[columns[-1]], "by symmetry", usage)


def _root_priority(topology: Topology) -> NDArray[np.int32]:
    """Whose tree goes first from the second round on, in the authors' order.

    On meshes they mean the distance to the farthest corner, but their formula only counts rows; elsewhere all
    are equal.
    """
    if topology.grid is None or any(topology.grid.wrap):
        return np.zeros(topology.ranks, np.int32)
    rows = np.unravel_index(np.arange(topology.ranks), topology.grid.shape)[0]
    return np.maximum(rows, topology.grid.shape[0] - 1 - rows).astype(np.int32)


class _Entrances(NamedTuple):
    """Per group: its ranks, what can come in from outside in one step, and what its ranks could take in."""

    ranks: NDArray[np.int64]
    inward: NDArray[np.int64]
    wanted: NDArray[np.int64]

    @classmethod
    def of(cls, usage: Usage) -> _Entrances | None:
        topology, capacity, groups = usage.topology, usage.capacity, usage.topology.groups
        if not groups or topology.direct:
            return None
        src, dst = topology.link_src, topology.link_dst
        owner = own_switches(topology, membership(topology))
        inward = (owner[src] != owner[dst]) & (owner[dst] >= 0)
        wanted = dst < topology.ranks
        return cls(
            np.array([len(members) for members in groups]),
            np.bincount(owner[dst[inward]], capacity[inward], len(groups)).astype(np.int64),
            np.bincount(owner[dst[wanted]], capacity[wanted], len(groups)).astype(np.int64),
        )
