"""In which order a ring visits the ranks.

On direct networks the order follows a Hamiltonian cycle of links where one is found, and keeps hops short
where none is. On switched networks it stays inside a host, or on a switch, as long as it can, and then goes
to a near one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.hamiltonian import find_cycle, find_long_path, grid_cycles, may_have_cycle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from weft.topology import Topology

_IMPROVED: Final = 512
"""Stops (ranks, or groups of ranks) up to which an order is improved by moving parts of it."""

_EVALUATIONS: Final = 1500
"""Hops whose neighbourhood an improvement may look at; fewer where each look is long."""


_SPEED_CLASSES: Final = 4
"""How many speeds of links are tried for a cycle of fast ones."""


def ring_order(topology: Topology, *, duplex: bool = False) -> tuple[list[int], str]:
    """Ranks in the order of a good ring, and a remark on how good it is.

    Parameters
    ----------
    topology
        The cluster.
    duplex
        The ring is used both ways: a hop counts as one link only if the way back is one, too.

    Returns
    -------
    order : list of int
        Every rank once; the last one's next is the first.
    note : str
        How many links the hops take.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> ring_order(load_topology("mesh:2x3"))
    ([0, 3, 4, 5, 2, 1], 'ring order: a Hamiltonian cycle, every hop is one link')
    >>> ring_order(load_topology("mesh:1x5"))[1]
    'ring order: no Hamiltonian cycle exists: 3 hops take 2 links'

    Notes
    -----
    Takes about 10 ms on a torus of 1024 ranks, and at most a few tenths of a second where it has to search.
    """
    if topology.direct:
        order, cycle_possible = _direct_order(topology, duplex)
    else:
        stops = topology.groups or tuple((rank,) for rank in range(topology.ranks))
        first = np.array([stop[0] for stop in stops])
        visit = _best_order(topology, first, [np.arange(len(stops))], duplex)
        order = [rank for index in visit for rank in stops[index]]
    # On links with a slow way back one turn is better than the other.
    if not duplex and link_seconds(topology, order[::-1]).max() < link_seconds(topology, order).max():
        order = order[::-1]
    if topology.direct:
        note = _describe_direct(_lengths_along(topology, order, duplex), cycle_possible, duplex)
    else:
        kind = "" if not topology.groups else "host" if topology.hosts else "switch"
        note = _describe_switched(topology.ranks, len(stops), kind)
    start = order.index(0)
    return order[start:] + order[:start], note


def places_behind(place: NDArray[np.int32], first: int = 0) -> NDArray[np.int32]:
    """Place on a ring from which came what each rank sends in each step of one round.

    Parameters
    ----------
    place
        Place of each rank.
    first
        How far behind itself a rank looks in the first step; one further in each later one.

    Returns
    -------
    ndarray
        One row per step, one column per rank.

    Examples
    --------
    >>> places_behind(np.arange(3, dtype=np.int32)).tolist()
    [[0, 1, 2], [2, 0, 1]]
    """
    ranks = np.uint32(len(place))
    offset = -np.arange(first, first + len(place) - 1) % len(place)
    far = place.astype(np.uint32) + offset.astype(np.uint32)[:, None]
    # The remainder, in a tenth of the time: where `far` is less than the ranks, the difference wraps round
    # and is the larger of both.
    np.minimum(far, far - ranks, out=far)
    return far.view(np.int32)


def link_seconds(topology: Topology, order: ArrayLike) -> NDArray[np.float64]:
    """Seconds per byte for which one ring keeps each link busy, on the paths the network takes by itself.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> link_seconds(load_topology("ring:3@bw=1GB/s"), [0, 1, 2]).tolist()
    [1e-09, 0.0, 1e-09, 0.0, 1e-09, 0.0]
    """
    ring = np.asarray(order, np.int32)
    _, links = topology.routes(ring, np.roll(ring, -1))
    return np.bincount(links, minlength=topology.links) / topology.bandwidth


def _direct_order(topology: Topology, duplex: bool) -> tuple[list[int], bool]:
    """Make an order, and say whether a Hamiltonian cycle could exist."""
    ranks = topology.ranks
    # A ring is as fast as its slowest hop, so cycles of fast links come first.
    fastest = sorted(set(topology.bandwidth.tolist()), reverse=True)[:_SPEED_CLASSES]
    for least in (*fastest, 0):
        links = _link_keys(topology, duplex, least)
        best, fewest = _nearest_to_cycle(topology, links)
        if not fewest:
            return best.tolist(), True
        out = _targets(links, ranks)
        possible = may_have_cycle(out)
        found = find_cycle(out) if possible else None
        if found is not None:
            return found, True
    if not possible and fewest == 1 and int(_lengths_along(topology, best, duplex).max()) == 2:
        return best.tolist(), False
    path = find_long_path(out)
    starts = [best, np.array([*path, *sorted(set(range(ranks)).difference(path))])]
    starts.append(np.array(_alternating_order(topology.neighbours)))
    return _best_order(topology, np.arange(ranks), starts, duplex), possible


def _nearest_to_cycle(topology: Topology, links: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Of rank order and the snakes of a grid, the one that lacks fewest links, and how many it lacks."""
    best = np.arange(topology.ranks)
    fewest = _missing(best, links, topology.ranks)
    for order in grid_cycles(topology.grid) if fewest and topology.grid is not None else ():
        for turned in (order, order[::-1]):
            missing = _missing(turned, links, topology.ranks)
            if missing < fewest:
                best, fewest = turned, missing
        if not fewest:
            break
    return best, fewest


def _targets(links: NDArray[np.int64], ranks: int) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in range(ranks)]
    for key in links.tolist():
        out[key // ranks].append(key % ranks)
    return out


def _link_keys(topology: Topology, duplex: bool, least: int) -> NDArray[np.int64]:
    """Sorted ``src * ranks + dst`` of all hops that are one link of at least some speed."""
    fast = topology.bandwidth >= least
    src, dst = topology.link_src[fast].astype(np.int64), topology.link_dst[fast].astype(np.int64)
    keys = np.sort(src * topology.ranks + dst)
    # Not by np.unique, which loads numpy.ma: that takes longer than to lay out a ring of 1,024 ranks.
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.intersect1d(keys, dst * topology.ranks + src) if duplex else keys


def _missing(order: NDArray[np.int64], links: NDArray[np.int64], ranks: int) -> int:
    hops = order * ranks + np.roll(order, -1)
    at = np.minimum(np.searchsorted(links, hops), len(links) - 1)
    return int((links[at] != hops).sum()) if len(links) else len(order)


def _alternating_order(neighbours: Sequence[Sequence[int]]) -> list[int]:
    """Ranks of a depth-first tree, even depths on the way down, odd ones on the way up.

    No hop is longer than three links of the tree.
    """
    order = [0]
    seen = {0}
    stack = [(0, iter(neighbours[0]))]
    while stack:
        node, rest = stack[-1]
        child = next((other for other in rest if other not in seen), None)
        if child is None:
            stack.pop()
            if len(stack) % 2:
                order.append(node)
            continue
        seen.add(child)
        if len(stack) % 2 == 0:
            order.append(child)
        stack.append((child, iter(neighbours[child])))
    return order


def _best_order(
    topology: Topology, stops: NDArray[np.int64], starts: list[NDArray[np.int64]], duplex: bool
) -> list[int]:
    """Visit `stops` (as indices) so that hops are short: the best of several orders, each improved."""
    tried = starts[-1:]
    if len(stops) <= _IMPROVED:
        lengths = hop_lengths(topology, stops, duplex)
        cost = lengths * lengths
        others = cost[~np.eye(len(stops), dtype=bool)]
        tried = starts[:1]
        if int(others.min()) < int(others.max()):
            tried = [_shorten(order, cost) for order in (*starts, _nearest_first(cost))]
        tried.sort(key=lambda order: int(cost[order, np.roll(order, -1)].sum()))
    return [int(index) for index in tried[0]]


def hop_lengths(topology: Topology, stops: ArrayLike, duplex: bool) -> NDArray[np.int64]:
    """Links on the network's own path between any two of `stops`; the longer way when used both ways."""
    ends = np.asarray(stops, np.int32)
    count = len(ends)
    offsets, _ = topology.routes(np.repeat(ends, count), np.tile(ends, count))
    lengths = np.diff(offsets).reshape(count, count)
    return np.maximum(lengths, lengths.T) if duplex else lengths


def _nearest_first(cost: NDArray[np.int64]) -> NDArray[np.int64]:
    order = [0]
    left = np.ones(len(cost), bool)
    left[0] = False
    while left.any():
        order.append(int(np.where(left, cost[order[-1]], np.iinfo(np.int64).max).argmin()))
        left[order[-1]] = False
    return np.array(order)


def _shorten(order: NDArray[np.int64], cost: NDArray[np.int64]) -> NDArray[np.int64]:
    """Repeat the best move at a long hop (turn a part round, or move up to three stops) until none helps."""
    least = int(cost[~np.eye(len(cost), dtype=bool)].min())
    budget = min(_EVALUATIONS, 200_000 // len(order))
    improved = len(order) > 3
    while improved and budget > 0:
        improved = False
        hops = cost[order, np.roll(order, -1)]
        for hop in np.argsort(-hops, kind="stable")[: int((hops > least).sum())].tolist():
            budget -= 1
            gain, moved = _best_move(np.roll(order, -1 - hop), cost)
            if gain > 0:
                order, improved = moved, True
                break
    return order


def _best_move(order: NDArray[np.int64], cost: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """Best change that removes the hop from the last stop to the first."""
    last, first = order[-1], order[0]
    here, after = order[:-1], order[1:]
    ahead, back = cost[here, after], cost[after, here]
    turned = np.concatenate([[0], np.cumsum(back - ahead)])[:-1]
    gains = cost[last, first] + ahead - cost[last, here] - cost[first, after] - turned
    cut = int(gains[1:].argmax()) + 1
    best = int(gains[cut]), np.concatenate([order[cut::-1], order[cut + 1 :]])
    for length in (1, 2, 3):
        if len(order) < length + 3:
            break
        heads, tails = order[1:-length], order[length:-1]
        before, behind = order[: -length - 1], order[length + 1 :]
        freed = cost[before, heads] + cost[tails, behind] - cost[before, behind] + cost[last, first]
        gains = freed - cost[last, heads] - cost[tails, first]
        at = int(gains.argmax()) + 1
        if int(gains[at - 1]) > best[0]:
            part = order[at : at + length]
            best = int(gains[at - 1]), np.concatenate([part, order[:at], order[at + length :]])
    return best


def _lengths_along(topology: Topology, order: ArrayLike, duplex: bool) -> NDArray[np.int64]:
    there = np.asarray(order, np.int32)
    onward = np.roll(there, -1)
    lengths = np.diff(topology.routes(there, onward)[0])
    return np.maximum(lengths, np.diff(topology.routes(onward, there)[0])) if duplex else lengths


def _describe_direct(lengths: NDArray[np.int64], cycle_possible: bool, duplex: bool) -> str:
    longer = Counter(int(length) for length in lengths if length > 1)
    if not longer:
        return "ring order: a Hamiltonian cycle, every hop is one link"
    why = "found" if cycle_possible else "exists"
    detours = ", ".join(
        f"{count} {'hop takes' if count == 1 else 'hops take'} {length} links"
        for length, count in sorted(longer.items())
    )
    cycle = "Hamiltonian cycle of full-duplex links" if duplex else "Hamiltonian cycle"
    return f"ring order: no {cycle} {why}: {detours}"


def _describe_switched(ranks: int, stops: int, kind: str) -> str:
    if not kind:
        return "ring order: by rank, nearest first where distances differ"
    return f"ring order: {kind} by {kind}, {stops} of {ranks} hops leave one"
