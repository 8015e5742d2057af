"""MultiTree: one spanning tree per rank, all grown together in the links that are still free.

Tree r carries chunk r. In every step each link may serve one tree (faster links serve several), and a rank
hands on what it had before the step; the next step begins with all links free again. What comes out is an
all-gather whose every step is free of contention by construction; run backwards it is a reduce-scatter.
`weft.algorithms.multitree.growth` says who grows where.

All three collectives take any topology: direct, switched, mixed, uneven, with failed links. Ranks never
forward for others except as tree members; switches are passed through. Links so slow that the rest is faster
without them are left out, unless `paper_order`. Every transfer has an explicit route. The options:

- `trees_per_root` cuts each shard in so many parts with a tree each. More trees fill steps better and shorten
  each.
- `paper_order` grows the trees exactly as the authors' program does, for their step counts. The default needs
  no more steps, and mostly fewer.

References
----------
.. [1] J. Huang et al., "Communication algorithm-architecture co-design for distributed deep learning",
   ISCA 2021, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import limits, units
from weft.algorithms.multitree.growth import LARGE, grow_trees
from weft.bounds.tree_columns import find_twins
from weft.errors import InputError
from weft.schedule import Op, ScheduleBuilder, passes

if TYPE_CHECKING:
    from weft.algorithms.multitree.growth import Trees
    from weft.schedule import Schedule
    from weft.topology import Topology

NAME: Final = "multitree"

VARIANTS: Final = ({"trees_per_root": 2}, {"paper_order": True})
"""Options that may be faster: more trees for large buffers, the authors' flatter ones for small ones."""


def all_gather(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """All-gather over one tree per rank, rank r's shard going down the tree rooted at r.

    Parameters
    ----------
    topology, trees_per_root, paper_order
        As the module says.

    Returns
    -------
    Schedule
        With prescribed ownership.

    Raises
    ------
    InputError
        If `trees_per_root` makes no sense.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> for spec in ("torus:4x4", "mesh:4x4", "hosts:8,4,2"):
    ...     topology = load_topology(spec)
    ...     print(spec, all_gather(topology, paper_order=True).steps, all_gather(topology).steps)
    torus:4x4 5 4
    mesh:4x4 10 8
    hosts:8,4,2 41 15

    Notes
    -----
    Cost: T steps of M/N bytes per link and tree. T is at least the largest of (N - 1)/links into a rank and
    the farthest two ranks' distance, which on all tori and hypercubes tried, and most meshes, is what it is.
    Building a torus of 1024 ranks takes 0.2 CPU s, a fat-tree some seconds.
    """
    return _gather(topology, _grow(topology, trees_per_root, paper_order=paper_order))


def reduce_scatter(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """Reduce-scatter up the trees: `all_gather` on the transposed topology, run backwards.

    Parameters
    ----------
    topology, trees_per_root, paper_order
        As the module says.

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
    trees = _grow(topology.transpose(), trees_per_root, paper_order=paper_order)
    return passes.reverse(_gather(topology.transpose(), trees))


def all_reduce(topology: Topology, *, trees_per_root: int = 1, paper_order: bool = False) -> Schedule:
    """All-reduce: up the trees, then down.

    Parameters
    ----------
    topology, trees_per_root, paper_order
        As the module says.

    Returns
    -------
    Schedule
        A reduce-scatter followed by an all-gather, so `weft.schedule.halves` takes it apart again.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("torus:4x4")).steps
    8

    Notes
    -----
    Cost: twice `all_gather`.
    """
    trees = _grow(topology, trees_per_root, paper_order=paper_order)
    twins = find_twins(topology)
    turned = topology.transpose()
    if len(trees.step) >= LARGE and len(twins):
        # The same trees over the cables' other directions do as well as others that take seconds to grow.
        back = trees._replace(route_links=twins[trees.route_links])
    else:
        back = _grow(turned, trees_per_root, paper_order=paper_order)
    scatter, gather = passes.reverse(_gather(turned, back)), _gather(topology, trees)
    return passes.compose(scatter, gather, "all_reduce")


def _grow(topology: Topology, trees_per_root: int, *, paper_order: bool) -> Trees:
    """Grow the trees of an all-gather, if they are not too many."""
    if not 1 <= trees_per_root <= limits.MAX_TREES_PER_ROOT:
        msg = f"{NAME}: trees_per_root is {trees_per_root}, expected 1..{limits.MAX_TREES_PER_ROOT}"
        raise InputError(msg)
    transfers = topology.ranks * trees_per_root * (topology.ranks - 1)
    limits.check(f"{NAME}: transfers", transfers, limits.MAX_TRANSFERS)
    return grow_trees(topology, trees_per_root, paper_order=paper_order)


def _gather(topology: Topology, trees: Trees) -> Schedule:
    """All-gather down trees that were grown on a topology, or on one that is alike."""
    chunks = len(trees.step) // (topology.ranks - 1)
    builder = ScheduleBuilder(topology, "all_gather", NAME, chunks=chunks)
    builder.add(
        step=trees.step, chunk=trees.tree, src=trees.parent, dst=trees.child, op=Op.COPY, route=trees.route
    )
    builder.note(f"trees grown {trees.way}")
    left_out = topology.links - len(trees.usage.links)
    if left_out:
        slowest = units.human_bandwidth(int(trees.usage.topology.bandwidth.min()))
        builder.note(f"{left_out} of {topology.links} links left out, slower than {slowest}")
    return builder.build((trees.route_offsets, trees.route_links))
