"""How long a signal takes between the two ranks that are farthest apart.

Paths run over any links, through switches and through ranks, and cost the sum of their latencies: no schedule
brings a byte from one rank to another sooner. Where there are too many ranks to try all, a part of them does:
what is found is then still no longer than the longest.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology

_MOST_BITS: Final = 4096
"""Sources that breadth-first search follows at once."""

_MOST_VISITS: Final = 200_000
"""Links that Dijkstra's algorithm looks at in all, give or take one source."""


class Path(NamedTuple):
    """Latency of the shortest path between two ranks."""

    latency_ps: int
    src: int
    dst: int


def longest_path(topology: Topology, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> Path:
    """Find the pair of a source and a target whose shortest path is longest.

    Parameters
    ----------
    topology
        Where.
    sources, targets
        Ranks; one of the two must be all of them.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> everyone = np.arange(16)
    >>> longest_path(load_topology("mesh:4x4@lat=1us"), everyone, everyone)
    Path(latency_ps=6000000, src=0, dst=15)
    """
    forward = len(sources) <= len(targets)
    near = sources if forward else targets
    uniform = len(np.unique(topology.latency_ps)) == 1
    if uniform and _is_whole_grid(topology):
        found = _across_grid(topology, near)
    else:
        ends = (topology.link_src, topology.link_dst)
        search = _breadth_first if uniform and topology.ranks <= _MOST_BITS else _dijkstra
        found = search(topology, *(ends if forward else ends[::-1]), near)
    return found if forward else Path(found.latency_ps, found.dst, found.src)


def _is_whole_grid(topology: Topology) -> bool:
    """Whether the links are just those of the grid, none missing: then distances add up over dimensions."""
    grid = topology.grid
    if grid is None or topology.switches:
        return False
    ranks = np.arange(topology.ranks).reshape(grid.shape)
    pairs = []
    for axis, (size, closed) in enumerate(zip(grid.shape, grid.wrap, strict=True)):
        here = ranks if closed else np.take(ranks, range(size - 1), axis)
        following = np.roll(ranks, -1, axis) if closed else np.take(ranks, range(1, size), axis)
        pairs.append(here.ravel() * topology.ranks + following.ravel())
        pairs.append(following.ravel() * topology.ranks + here.ravel())
    wanted = np.unique(np.concatenate(pairs))
    present = np.unique(topology.link_src.astype(np.int64) * topology.ranks + topology.link_dst)
    return np.array_equal(wanted, present)


def _across_grid(topology: Topology, sources: NDArray[np.int64]) -> Path:
    grid = topology.grid
    assert grid is not None
    here = np.stack(np.unravel_index(sources, grid.shape))
    shape, wrap = np.array(grid.shape)[:, None], np.array(grid.wrap)[:, None]
    far = np.where(wrap, (here + shape // 2) % shape, np.where(2 * here < shape - 1, shape - 1, 0))
    hops = np.where(wrap, shape // 2, np.abs(far - here)).sum(axis=0)
    best = int(hops.argmax())
    target = int(np.ravel_multi_index(tuple(far[:, best]), grid.shape))
    return Path(int(hops[best]) * int(topology.latency_ps[0]), int(sources[best]), target)


def _breadth_first(
    topology: Topology, src: NDArray[np.int32], dst: NDArray[np.int32], sources: NDArray[np.int64]
) -> Path:
    """All links cost the same: follow every source at once, a bit each."""
    order = np.argsort(dst, kind="stable")
    src, dst = src[order], dst[order]
    heads = np.flatnonzero(np.concatenate([[True], dst[1:] != dst[:-1]]))
    number = np.arange(len(sources))
    reached = np.zeros((topology.nodes, (len(sources) + 63) // 64), np.uint64)
    np.bitwise_or.at(reached, (sources, number // 64), np.uint64(1) << (number % 64).astype(np.uint64))
    every = np.bitwise_or.reduce(reached, axis=0)
    hops, last = 0, (int(sources[0]), int(sources[0]))
    while not np.array_equal(np.bitwise_and.reduce(reached[: topology.ranks], axis=0), every):
        hops += 1
        missing = every & ~reached[: topology.ranks]
        rank = int(np.flatnonzero(missing.any(axis=1))[0])
        word = int(np.flatnonzero(missing[rank])[0])
        bits = int(missing[rank, word])
        last = int(sources[word * 64 + (bits & -bits).bit_length() - 1]), rank
        reached[dst[heads]] |= np.bitwise_or.reduceat(reached[src], heads, axis=0)
    return Path(hops * int(topology.latency_ps[0]), *last)


def _dijkstra(
    topology: Topology, src: NDArray[np.int32], dst: NDArray[np.int32], sources: NDArray[np.int64]
) -> Path:
    """Find shortest paths from as many sources as time allows, evenly spread."""
    links: list[list[tuple[int, int]]] = [[] for _ in range(topology.nodes)]
    columns = (src.tolist(), dst.tolist(), topology.latency_ps.tolist())
    for here, there, latency in zip(*columns, strict=True):
        links[here].append((there, latency))
    count = min(len(sources), max(2, _MOST_VISITS // topology.links))
    best = Path(-1, 0, 0)
    for source in sources[np.linspace(0, len(sources) - 1, count).astype(np.int64)].tolist():
        distance = _distances_from(links, source)[: topology.ranks]
        far = max(range(topology.ranks), key=distance.__getitem__)
        best = max(best, Path(distance[far], source, far), key=lambda path: path.latency_ps)
    return best


def _distances_from(links: list[list[tuple[int, int]]], source: int) -> list[int]:
    """Latency from one node to every other; -1 where nothing leads, which can only be a switch."""
    distance = [-1] * len(links)
    queue = [(0, source)]
    while queue:
        latency, node = heapq.heappop(queue)
        if distance[node] >= 0:
            continue
        distance[node] = latency
        for following, more in links[node]:
            if distance[following] < 0:
                heapq.heappush(queue, (latency + more, following))
    return distance
