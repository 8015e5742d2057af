"""The path a network takes by itself.

Four rules, all deterministic:

``dimension-order``
    On grids: correct the last coordinate first, then the one before, each the shorter way round (forward
    when both are equal). A pair whose path lost a link to a failure takes a shortest path instead.
``shortest``
    Fewest links; among those the widest; among those by destination rank, so that different destinations
    spread over parallel links and over a fat-tree's spines (up and then down).
``by-switch``
    As ``shortest``, but spread by the number of the destination's *switch*: BiGraph's rule for two
    switches of one half.
``ecmp``
    As ``shortest``, but each flow (source, destination) is hashed with a seed, as switches do it.

The C++ half is ``cpp/topology/graph.cpp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import _core, limits
from weft.columns import as_whole
from weft.errors import LimitError, TopologyError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from weft.topology.graph import Topology

    _Ranks = NDArray[np.int32]
    _Routes = tuple[NDArray[np.int64], NDArray[np.int32]]

# In operations as `weft.limits.MAX_WORK` counts them.
_PATH_WORK: Final = 120.0
_HOP_WORK: Final = 12.0
_NODE_WORK: Final = 6.0
_LINK_WORK: Final = 4.0


def find_routes(topology: Topology, src: ArrayLike, dst: ArrayLike, max_work: float | None = None) -> _Routes:
    """Paths for many pairs: ``offsets`` and one flat list of links.

    Parameters
    ----------
    topology
        Where to route.
    src, dst
        Ranks; a pair with equal ends has an empty path.
    max_work
        Operations that finding them may take, by estimate; None for any number.

    Raises
    ------
    TopologyError
        If the pairs are not pairs of ranks.
    LimitError
        If the paths are too long together, or finding them would take more operations than `max_work`.
    """
    src = np.ascontiguousarray(as_whole("source of a route", src, np.int32, TopologyError))
    dst = np.ascontiguousarray(as_whole("destination of a route", dst, np.int32, TopologyError))
    if src.ndim != 1 or src.shape != dst.shape:
        msg = f"{topology.name}: {src.size} sources and {dst.size} destinations are no list of pairs"
        raise TopologyError(msg)
    if len(src) and (min(src.min(), dst.min()) < 0 or max(src.max(), dst.max()) >= topology.ranks):
        raise TopologyError(f"{topology.name}: routes run between ranks 0..{topology.ranks - 1}")
    try:
        return _find(topology, src, dst, max_work)
    except _core.TooMany as error:
        bound = f"more than {limits.MAX_ROUTE_ENTRIES:,} links"
        raise LimitError(f"{topology.name}: the paths of {len(src):,} pairs have {bound}") from error


def _find(topology: Topology, src: _Ranks, dst: _Ranks, max_work: float | None) -> _Routes:
    if topology.routing.kind != "dimension-order" or topology.grid is None:
        return _shortest(topology, src, dst, max_work)
    if max_work is not None:
        sides = zip(topology.grid.shape, topology.grid.wrap, strict=True)
        hops = sum(size / (4 if wrap else 3) for size, wrap in sides)
        work = len(dst) * hops * (_HOP_WORK + _most_links(topology))
        _check_work(topology, work, len(dst), max_work)
    graph = (topology.nodes, topology.link_src, topology.link_dst)
    grid = (np.array(topology.grid.shape, np.int64), np.array(topology.grid.wrap, np.uint8))
    offsets, links, broken = _core.grid_routes(*graph, *grid, src, dst, limits.MAX_ROUTE_ENTRIES)
    if not len(broken):
        return offsets, links
    return _fill_in(offsets, links, broken, _shortest(topology, src[broken], dst[broken], max_work))


def attached_switch(topology: Topology, rank: int) -> int:
    """Number of the first switch a rank hangs on, or 0 on a direct network."""
    found = next((node for node in topology.neighbours[rank] if node >= topology.ranks), topology.ranks)
    return found - topology.ranks


def _most_links(topology: Topology) -> int:
    """Most links that leave one node."""
    return int(np.bincount(topology.link_src, minlength=1).max())


def _check_work(topology: Topology, work: float, pairs: int, max_work: float | None) -> None:
    limits.check_work(f"{topology.name}: finding the paths of {pairs:,} pairs of ranks", work, max_work)


def _shortest(topology: Topology, src: _Ranks, dst: _Ranks, max_work: float | None) -> _Routes:
    if max_work is not None:
        # A search from each destination over the whole network, then a look at all ways on from each node.
        search = _NODE_WORK * topology.nodes + _LINK_WORK * topology.links
        work = len(np.unique(dst)) * search + len(dst) * (_PATH_WORK + _most_links(topology))
        _check_work(topology, work, len(dst), max_work)
    if topology.routing.kind == "by-switch":
        key = np.array([attached_switch(topology, rank) for rank in range(topology.ranks)], np.int64)
    else:
        key = np.arange(topology.ranks, dtype=np.int64)
    graph = (topology.nodes, topology.link_src, topology.link_dst, topology.bandwidth)
    hashed, seed = topology.routing.kind == "ecmp", topology.routing.seed
    return _core.shortest_routes(*graph, src, dst, key, hashed, seed, limits.MAX_ROUTE_ENTRIES)


def _fill_in(
    offsets: NDArray[np.int64], links: NDArray[np.int32], which: NDArray[np.int64], detours: _Routes
) -> _Routes:
    """Put detours in for the empty paths of pairs `which`."""
    lengths = np.diff(offsets)
    lengths[which] = np.diff(detours[0])
    merged = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    filled = np.empty(int(merged[-1]), np.int32)
    is_new = np.zeros(len(lengths), bool)
    is_new[which] = True
    owner_is_new = np.repeat(is_new, lengths)
    filled[~owner_is_new] = links
    filled[owner_is_new] = detours[1]
    return merged, filled
