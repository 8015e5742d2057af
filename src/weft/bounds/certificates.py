"""Proofs that no packing of trees is faster than so much, and an independent check of them.

Give every link a price y, not negative. A tree with rate x costs at least x times the price C of the cheapest
tree; all links together, bought whole, cost sum(b y). So whatever trees are used, their rates sum to at most
sum(b y) / C: the prices are the proof. Any prices prove something; those that solve the dual of the packing
programme prove the best there is.

That is about packings of trees. Any schedule of an all-reduce obeys a bound of this sort, too. Say that two
ranks are near, for a given price, if a message from one to the other costs less, whichever way; the ranks
fall into p groups that are connected by being near. Every element needs at least 2 (p - 1) messages from one
group to another (docs/bounds.md), and each costs at least the given price. Summed over all prices, from
nothing to the highest, that makes twice the price of the cheapest spanning tree, where an edge costs what the
cheaper direction costs: `prove_seconds`. Where prices are the same both ways the two bounds are one.

`check_certificate` needs nothing but the topology and the prices: no compiled code, no solver, whole numbers
throughout. It is slow on purpose: plain Dijkstra, Prim and Chu-Liu.
"""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from weft.columns import whole, whole_tuple
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.topology import Topology


class _Arc(NamedTuple):
    src: int
    dst: int
    price: int


def check_certificate(
    topology: Topology,
    prices: Sequence[int],
    claimed: Fraction | float,
    collective: str = "all_reduce",
    root: int = 0,
) -> bool:
    """Whether prices of the links prove that no packing of trees is faster than claimed.

    Parameters
    ----------
    topology
        The cluster.
    prices
        One whole number per link, not negative.
    claimed
        Bytes per second of the buffer that no packing exceeds.
    collective, root
        ``all_reduce``, ``broadcast`` or ``reduce``, and the root of the latter two.

    Raises
    ------
    InputError
        If there is not one price per link, or one is negative.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> mesh = load_topology("mesh:4x4@bw=10GB/s")
    >>> check_certificate(mesh, [1] * mesh.links, 16_000_000_000)
    True
    >>> check_certificate(mesh, [1] * mesh.links, 15_999_999_999)
    False

    Notes
    -----
    Symmetric prices cost a spanning tree; others an arborescence for every root, seconds for a hundred ranks.
    """
    bound = price_bound(topology, prices, collective, root)
    return bound is not None and bound <= claimed


def price_bound(
    topology: Topology, prices: Sequence[int], collective: str = "all_reduce", root: int = 0
) -> Fraction | None:
    """Bytes per second that prices of the links prove to be the most; None if they prove nothing."""
    if collective not in ("all_reduce", "broadcast", "reduce"):
        msg = f"prices prove nothing about {collective!r}, only about all_reduce, broadcast and reduce"
        raise InputError(msg)
    root = whole("root", root, InputError)
    topology.check_root(root)
    paid, arcs = _pay(topology, prices)
    cheapest = _cheapest_tree(topology.ranks, arcs, collective, root)
    return Fraction(paid, cheapest) if cheapest else None


def prove_seconds(topology: Topology, prices: Sequence[int]) -> Fraction:
    """Seconds per byte that no all-reduce beats, from prices of the links; 0 if they prove nothing.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> mesh = load_topology("mesh:4x4@bw=10GB/s")
    >>> prove_seconds(mesh, [1] * mesh.links) * 16_000_000_000
    Fraction(1, 1)
    """
    paid, arcs = _pay(topology, prices)
    either = [*arcs, *(_Arc(arc.dst, arc.src, arc.price) for arc in arcs)]
    return Fraction(2 * _spanning_tree(topology.ranks, either), paid) if paid else Fraction(0)


def _pay(topology: Topology, prices: Sequence[int]) -> tuple[int, list[_Arc]]:
    """Price of all links, bought whole, and of the cheapest ways between ranks."""
    prices = whole_tuple("price", prices, InputError)
    if len(prices) != topology.links or min(prices, default=0) < 0:
        msg = f"{topology.name}: need {topology.links} prices that are not negative, not {len(prices)}"
        raise InputError(msg)
    paid = sum(speed * price for speed, price in zip(topology.bandwidth.tolist(), prices, strict=True))
    return paid, [arc for rank in range(topology.ranks) for arc in _reach(topology, prices, rank)]


def _reach(topology: Topology, prices: Sequence[int], rank: int) -> Iterable[_Arc]:
    """Cheapest paths from a rank to others that pass through switches only."""
    best = {rank: 0}
    queue = [(0, rank)]
    while queue:
        cost, node = heapq.heappop(queue)
        if cost > best[node]:
            continue
        if node != rank and node < topology.ranks:
            yield _Arc(rank, node, cost)
            continue
        for neighbour in topology.neighbours[node]:
            step = min(int(prices[link]) for link in topology.links_between(node, neighbour))
            if cost + step < best.get(neighbour, math.inf):
                best[neighbour] = cost + step
                heapq.heappush(queue, (cost + step, neighbour))


def _cheapest_tree(ranks: int, arcs: list[_Arc], collective: str, root: int) -> int:
    back = [_Arc(arc.dst, arc.src, arc.price) for arc in arcs]
    if sorted(arcs) == sorted(back):
        return _spanning_tree(ranks, arcs) * (2 if collective == "all_reduce" else 1)
    if collective == "broadcast":
        return _arborescence(ranks, root, arcs)
    if collective == "reduce":
        return _arborescence(ranks, root, back)
    return min(_arborescence(ranks, r, arcs) + _arborescence(ranks, r, back) for r in range(ranks))


def _spanning_tree(ranks: int, arcs: list[_Arc]) -> int:
    """Prim's algorithm."""
    leaving: list[list[_Arc]] = [[] for _ in range(ranks)]
    for arc in arcs:
        leaving[arc.src].append(arc)
    total, joined, queue = 0, set[int](), [(0, 0)]
    while len(joined) < ranks:
        price, rank = heapq.heappop(queue)
        if rank in joined:
            continue
        joined.add(rank)
        total += price
        for arc in leaving[rank]:
            heapq.heappush(queue, (arc.price, arc.dst))
    return total


def _arborescence(nodes: int, root: int, arcs: list[_Arc]) -> int:
    """Price of the cheapest arborescence from a root: Chu and Liu's algorithm.

    Every node takes its cheapest arc; cycles among those become single nodes, and arcs into them cost only
    what they add; and so on until there are no cycles.
    """
    total = 0
    while True:
        cheapest: dict[int, _Arc] = {}
        for arc in arcs:
            if arc.dst != root and (arc.dst not in cheapest or arc.price < cheapest[arc.dst].price):
                cheapest[arc.dst] = arc
        total += sum(arc.price for arc in cheapest.values())
        groups, cycles = _name_cycles(nodes, root, cheapest)
        if not cycles:
            return total
        arcs = [
            _Arc(
                groups[arc.src],
                groups[arc.dst],
                arc.price - (cheapest[arc.dst].price if arc.dst != root else 0),
            )
            for arc in arcs
            if groups[arc.src] != groups[arc.dst]
        ]
        nodes, root = max(groups) + 1, groups[root]


def _name_cycles(nodes: int, root: int, cheapest: dict[int, _Arc]) -> tuple[list[int], int]:
    """Number of the cycle, or else of its own, for each node, cycles first; and how many cycles there are."""
    group, walk = [-1] * nodes, [-1] * nodes
    cycles = 0
    for start in range(nodes):
        node = start
        while node != root and group[node] < 0 and walk[node] != start:
            walk[node] = start
            node = cheapest[node].src
        if node == root or group[node] >= 0:
            continue
        while group[node] < 0:
            group[node] = cycles
            node = cheapest[node].src
        cycles += 1
    rest = cycles
    for node in range(nodes):
        if group[node] < 0:
            group[node] = rest
            rest += 1
    return group, cycles
