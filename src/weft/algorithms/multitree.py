"""MultiTree: one spanning tree per rank, all grown together in the links that are still free.

Tree r carries chunk r. In every step each link may serve one tree (faster links serve several); trees take
turns to add one edge each, from the ranks that joined in earlier steps, until nobody can add any more, and
then the next step begins with all links free again. What comes out is an all-gather whose every step is
free of contention by construction; run backwards it is a reduce-scatter.

From "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning", ISCA 2021, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft import _core, limits
from weft.columns import row_order
from weft.errors import InputError
from weft.schedule import Op, Schedule, passes
from weft.schedule.cuts import make_condition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

NAME = "multitree"


def all_gather(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """All-gather over one tree per rank, rank r's shard going down the tree rooted at r.

    Parameters
    ----------
    topology
        Any: direct, switched, mixed, uneven, with failed links. Ranks never forward for others except as tree
        members; switches are passed through.
    trees_per_root
        Cut each shard in so many parts with a tree each. More trees fill steps better and shorten each.
    paper_order
        Take the authors' order of trees and their early end of a round, for their step counts. The default
        needs no more steps, and fewer on meshes.

    Returns
    -------
    Schedule
        With prescribed ownership and an explicit route for every transfer.

    Raises
    ------
    InputError
        If `trees_per_root` makes no sense.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:4x4")).steps
    5
    >>> mesh = load_topology("mesh:4x4")
    >>> all_gather(mesh).steps, all_gather(mesh, paper_order=True).steps
    (8, 10)

    Notes
    -----
    Cost: T steps of M/N bytes per link and tree, T at least the largest of N(N-1)/links, (N-1)/degree and the
    eccentricity; on 2D tori T is one above that or equal. Building takes O(T N F) for F ranks on a tree's
    frontier: 0.4 CPU s for 1024 ranks on a torus.
    """
    if not 1 <= trees_per_root <= limits.MAX_TREES_PER_ROOT:
        msg = f"{NAME}: trees_per_root is {trees_per_root}, expected 1..{limits.MAX_TREES_PER_ROOT}"
        raise InputError(msg)
    trees = topology.ranks * trees_per_root
    limits.check(f"{NAME}: transfers", trees * (topology.ranks - 1), limits.MAX_TRANSFERS)
    links = _link_order(topology)
    # Whether it pays to pass through switches that have ranks of their own depends on the network: no on
    # BiGraph, yes on most dragonflies. The authors never do.
    passes_all = (False,) if paper_order or topology.direct else (False, True)
    step, tree, parent, child, route, offsets, flat = min(
        (
            _core.grow_multitree(
                topology.nodes,
                topology.ranks,
                trees,
                topology.link_src[links],
                topology.link_dst[links],
                _link_capacity(topology)[links],
                _tree_priority(topology, trees_per_root),
                paper_order,
                pass_all,
            )
            for pass_all in passes_all
        ),
        key=lambda forest: int(forest[0][-1]),
    )
    rows = row_order([step, parent, child, route, tree])
    if rows is not None:
        step, tree, parent, child, route = (column[rows] for column in (step, tree, parent, child, route))
    owner = np.arange(trees, dtype=np.int32) // trees_per_root
    source, target = make_condition("all_gather", topology.ranks, trees, owner=owner)
    return Schedule(
        topology=topology,
        collective="all_gather",
        algorithm=NAME,
        weights=np.ones(trees, np.int64),
        denominator=trees,
        source=source,
        target=target,
        ownership="prescribed",
        step=step,
        chunk=tree,
        src=parent,
        dst=child,
        op=np.full(len(step), Op.COPY, np.uint8),
        route=route,
        route_offsets=offsets,
        route_links=links[flat],
    )


def reduce_scatter(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """Reduce-scatter up the trees: `all_gather` on the transposed topology, run backwards.

    Parameters
    ----------
    topology, trees_per_root, paper_order
        As in `all_gather`.

    Returns
    -------
    Schedule
        With prescribed ownership and an explicit route for every transfer.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("fattree:16")).steps
    15

    Notes
    -----
    Cost: as `all_gather`.
    """
    gather = all_gather(topology.transpose(), trees_per_root=trees_per_root, paper_order=paper_order)
    return passes.reverse(gather)


def all_reduce(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """All-reduce: up the trees, then down.

    Parameters
    ----------
    topology, trees_per_root, paper_order
        As in `all_gather`.

    Returns
    -------
    Schedule
        A reduce-scatter followed by an all-gather, so `weft.halves` takes it apart again.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4")).steps
    10

    Notes
    -----
    Cost: twice `all_gather`.
    """
    scatter = reduce_scatter(topology, trees_per_root=trees_per_root, paper_order=paper_order)
    gather = all_gather(topology, trees_per_root=trees_per_root, paper_order=paper_order)
    return passes.compose(scatter, gather, "all_reduce")


def _link_order(topology: Topology) -> NDArray[np.int32]:
    """Order in which a rank looks at its links: on grids back and forth along each axis, else as drawn.

    On a 2D grid that is north, south, west, east, as in the authors' code; step counts depend on it.
    """
    links = np.arange(topology.links, dtype=np.int32)
    if topology.grid is None:
        return links
    here = np.array(np.unravel_index(topology.link_src, topology.grid.shape))
    there = np.array(np.unravel_index(topology.link_dst, topology.grid.shape))
    axis = np.argmax(here != there, axis=0)
    shape = np.array(topology.grid.shape)[axis]
    moved = (np.take_along_axis(there, axis[None], 0) - np.take_along_axis(here, axis[None], 0))[0]
    forward = moved % shape == 1
    return links[np.lexsort((links, forward, axis))]


def _link_capacity(topology: Topology) -> NDArray[np.int32]:
    """Trees a link serves in one step: its speed in units of the slowest link's."""
    slowest = int(topology.bandwidth.min())
    return np.minimum(topology.bandwidth // slowest, topology.ranks * topology.ranks).astype(np.int32)


def _tree_priority(topology: Topology, trees_per_root: int) -> NDArray[np.int32]:
    """Who goes first from the second round on, with `paper_order`.

    On meshes the authors mean the distance to the farthest corner, but their formula only counts rows;
    elsewhere all are equal.
    """
    priority = np.zeros(topology.ranks, np.int32)
    if topology.grid is not None and not any(topology.grid.wrap):
        rows = np.unravel_index(np.arange(topology.ranks), topology.grid.shape)[0]
        priority = np.maximum(rows, topology.grid.shape[0] - 1 - rows).astype(np.int32)
    return np.repeat(priority, trees_per_root)
