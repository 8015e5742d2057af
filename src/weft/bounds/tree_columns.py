"""Spanning trees of a cluster in columns, and the native functions that make them.

A tree carries one chunk: up, every rank adds what it has to its parent's, and down, every rank passes the
result on. An edge is a path between two ranks through switches only. `packing` weighs such trees,
`timetable` says when each edge is used. The C++ half is ``cpp/synthesis/tree_packing.cpp`` and
``cpp/synthesis/arborescence.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

TREE_COLLECTIVES: Final = {"all_reduce": (True, True), "reduce": (True, False), "broadcast": (False, True)}
"""Which halves of its trees a collective uses: up, down."""

_MOST_CENTRES: Final = 4096
"""Ranks up to which it is worth knowing who is in the middle."""

_SHARPNESS: Final = 0.43
"""How many times the price of a link doubles with one more tree on it."""

DEPTH_PRICE: Final = 0.05
"""What one more level of a tree costs by default."""

_SEED: Final = 1
"""Decides ties."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeColumns:
    """Trees over all ranks.

    Parameters
    ----------
    root
        Root of each tree.
    up, down
        Row t, column r: number of the route from rank r to its parent in tree t, and from its parent to it;
        -1 at the root, and in a half that the collective does not use.
    route_offsets, route_links
        Route i is ``route_links[route_offsets[i]:route_offsets[i + 1]]``.
    """

    root: NDArray[np.int32]
    up: NDArray[np.int32]
    down: NDArray[np.int32]
    route_offsets: NDArray[np.int64]
    route_links: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.root)

    def count_links(self, links: int) -> NDArray[np.int64]:
        """How often each tree (row) crosses each link (column)."""
        counts = np.zeros(len(self) * links, np.int64)
        for half in (self.up, self.down):
            tree, rank = np.nonzero(half >= 0)
            route = half[tree, rank]
            lengths = np.diff(self.route_offsets)[route]
            first = np.repeat(self.route_offsets[route] - np.cumsum(lengths) + lengths, lengths)
            crossed = self.route_links[first + np.arange(len(first))]
            counts += np.bincount(np.repeat(tree, lengths) * links + crossed, minlength=len(counts))
        return counts.reshape(len(self), links)

    def take(self, trees: NDArray[np.int64]) -> TreeColumns:
        """Some of the trees; the route table stays."""
        picked = (self.root[trees], self.up[trees], self.down[trees])
        return TreeColumns(*picked, self.route_offsets, self.route_links)


def join_trees(parts: list[TreeColumns]) -> TreeColumns:
    """All trees of several sets, with one route table."""
    ups, downs = [], []
    routes = 0
    for part in parts:
        ups.append(np.where(part.up < 0, -1, part.up + routes).astype(np.int32))
        downs.append(np.where(part.down < 0, -1, part.down + routes).astype(np.int32))
        routes += len(part.route_offsets) - 1
    lengths = np.concatenate([np.diff(part.route_offsets) for part in parts])
    return TreeColumns(
        np.concatenate([part.root for part in parts]),
        np.concatenate(ups),
        np.concatenate(downs),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.concatenate([part.route_links for part in parts]),
    )


def find_twins(topology: Topology) -> NDArray[np.int32]:
    """For each link the equally fast one the other way; empty unless every link has its own.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> find_twins(load_topology("ring:3"))
    array([1, 0, 3, 2, 5, 4], dtype=int32)
    >>> find_twins(load_topology("ring:4+fail=0>1"))
    array([], dtype=int32)
    """
    src, dst, speed = topology.link_src, topology.link_dst, topology.bandwidth
    forward = np.lexsort((speed, dst, src))
    backward = np.lexsort((speed, src, dst))
    fits = all(
        np.array_equal(there[forward], back[backward])
        for there, back in ((src, dst), (dst, src), (speed, speed))
    )
    if not fits:
        return np.zeros(0, np.int32)
    twins = np.empty(topology.links, np.int32)
    twins[forward] = backward
    return twins


def find_centres(topology: Topology, slack: int) -> NDArray[np.int32]:
    """Ranks from which the farthest rank is at most `slack` links farther than it has to be.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> find_centres(load_topology("mesh:4x4"), 0)
    array([ 5,  6,  9, 10], dtype=int32)
    """
    farthest = _farthest(topology)
    return np.flatnonzero(farthest <= farthest.min() + slack).astype(np.int32)


def find_radius(topology: Topology) -> int:
    """Links between a rank in the middle and the rank farthest from it; 0 where it is not worth knowing.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> find_radius(load_topology("mesh:4x4"))
    4
    """
    return int(_farthest(topology).min())


def _farthest(topology: Topology) -> NDArray[np.int32]:
    if topology.ranks > _MOST_CENTRES:
        return np.zeros(topology.ranks, np.int32)
    return _core.rank_eccentricities(topology.nodes, topology.ranks, topology.link_src, topology.link_dst)


def grow_trees(
    topology: Topology,
    roots: NDArray[np.int32],
    halves: tuple[bool, bool],
    trees: int,
    sweeps: int = 6,
    depth_price: float = DEPTH_PRICE,
    raise_every: int | None = None,
) -> tuple[TreeColumns, NDArray[np.float64]]:
    """Trees that load the links evenly, and the prices of the links that led to them.

    Each tree is grown where the others left room: a link's price rises exponentially with its load. On
    symmetric networks a tree is the same up and down. Tree t has the root ``roots[t % len(roots)]``.

    Parameters
    ----------
    topology, halves
        Where, and which halves of the trees, up and down, are used.
    roots, trees
        Where the trees begin, and how many there are.
    sweeps
        How often each is taken out and grown again; more spread the load more evenly.
    depth_price
        What one more level costs, in average edges: more makes shallower trees and less even load.
    raise_every
        Edges after which a tree feels its own load: one makes it best, but costs ranks x links on switches.
        By default 1 on small networks and 4 on others.
    """
    if raise_every is None:
        raise_every = 1 if topology.ranks <= (256 if topology.direct else 128) else 4
    _, price, root, up, down, offsets, links = _core.pack_trees(
        nodes=topology.nodes,
        ranks=topology.ranks,
        src=topology.link_src,
        dst=topology.link_dst,
        twin=find_twins(topology),
        slot=1.0 / topology.bandwidth,
        roots=roots,
        trees=trees,
        sweeps=sweeps,
        raise_every=raise_every,
        sharpness=_SHARPNESS,
        depth_price=depth_price,
        up=halves[0],
        down=halves[1],
        seed=_SEED,
    )
    shape = (trees, topology.ranks)
    return TreeColumns(root, up.reshape(shape), down.reshape(shape), offsets, links), price


def cheapest_tree(
    topology: Topology,
    twins: NDArray[np.int32],
    prices: NDArray[np.int64],
    halves: tuple[bool, bool],
    *,
    root: int = -1,
    every_root: bool = True,
) -> tuple[int, TreeColumns]:
    """Find the cheapest tree under given prices of the links, and what it costs.

    With `root` -1 the root is free. If the network is not symmetric and not `every_root`, the price is a
    lower bound: the two halves may each have their own best root.
    """
    price, _, roots, up, down, offsets, links = _core.cheapest_column(
        topology.nodes,
        topology.ranks,
        topology.link_src,
        topology.link_dst,
        twins,
        prices,
        *halves,
        root,
        every_root,
    )
    return int(price), TreeColumns(roots, up[None, :], down[None, :], offsets, links)
