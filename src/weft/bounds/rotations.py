"""Networks that look the same after all ranks moved on by some: boxes, leaf switches, pods that are alike.

What is good for one place is then good for all. A tree that is moved along with the ranks crosses the links
that the moved links are, so that all its copies together load links that are alike evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.bounds.tree_columns import TreeColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Where everything comes to lie when groups of ranks change places in a circle.

    Parameters
    ----------
    ranks, links
        What each rank and each link becomes.
    order
        After how many times everything is in its place again.
    """

    ranks: NDArray[np.int32]
    links: NDArray[np.int32]
    order: int

    def copy_trees(self, trees: TreeColumns) -> TreeColumns:
        """The trees, moved on 0, 1, .. `order` - 1 times: all copies of the first, then of the second, .."""
        count, ranks = trees.up.shape
        orbit, place, offsets, links = self._route_orbits(trees)
        root = np.empty((count, self.order), np.int32)
        up, down = np.empty((2, count, self.order, ranks), np.int32)
        to: NDArray[np.int64] = np.arange(ranks)
        for turn in range(self.order):
            moved = np.append(orbit * self.order + (place + turn) % self.order, -1).astype(np.int32)
            root[:, turn] = to[trees.root]
            up[:, turn, to] = moved[trees.up]
            down[:, turn, to] = moved[trees.down]
            to = self.ranks[to].astype(np.int64)
        return TreeColumns(root.ravel(), up.reshape(-1, ranks), down.reshape(-1, ranks), offsets, links)

    def _route_orbits(
        self, trees: TreeColumns
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
        """For each route the family of those that it becomes, and its place in there; then all families."""
        lengths = np.diff(trees.route_offsets)
        longest = int(lengths.max(initial=1))
        # Links one to the right, and nothing to the left of them, where a route is shorter than the longest.
        inside = np.arange(longest) < lengths[:, None]
        first = np.zeros((len(lengths), longest), np.int64)
        first[inside] = trees.route_links
        onward = np.append(self.links, -1).astype(np.int64)
        routes = np.where(inside, first, -1)
        least, place, now = routes.copy(), np.zeros(len(routes), np.int64), routes
        for turn in range(1, self.order):
            now = onward[now]
            differs = now != least
            at = differs.argmax(axis=1)[:, None]
            smaller = np.take_along_axis(now, at, 1)[:, 0] < np.take_along_axis(least, at, 1)[:, 0]
            least[smaller] = now[smaller]
            place[smaller] = (self.order - turn) % self.order
        families, orbit = np.unique(least, axis=0, return_inverse=True)
        table, now = [], families
        for _ in range(self.order):
            table.append(now)
            now = onward[now]
        every = np.stack(table, axis=1).reshape(-1, longest)
        kept = every >= 0
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept.sum(axis=1))])
        return orbit.ravel(), place, offsets, every[kept].astype(np.int32)


def find_rotations(topology: Topology) -> list[Rotation]:
    """Find rotations inside groups of ranks such as boxes, of these groups, and of groups of these.

    Together they take every rank to every other. None where no rank can take another's place.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> for spec in ("dgx-h100:4", "fattree:4,4,4", "dgx-h100:64", "hosts:4,4,2"):
    ...     print(spec, [rotation.order for rotation in find_rotations(load_topology(spec))])
    dgx-h100:4 [8, 4]
    fattree:4,4,4 [4, 4]
    dgx-h100:64 [8, 32, 2]
    hosts:4,4,2 []
    """
    groups = topology.groups
    if len(groups) < 2 or [rank for group in groups for rank in group] != list(range(topology.ranks)):
        return []
    size = len(groups[0])
    if any(len(group) != size for group in groups):
        return []
    found, shift = list[Rotation](), 1
    while shift < topology.ranks:
        most = size if shift < size else topology.ranks
        blocks = (block for block in range(most, shift, -shift) if most % block == 0)
        tried = (_rotate(topology, shift, block) for block in blocks)
        rotation = next((rotation for rotation in tried if rotation is not None), None)
        if rotation is None:
            return []
        found.append(rotation)
        shift *= rotation.order
    return found


def find_orbits(rotations: list[Rotation], links: int) -> NDArray[np.int64]:
    """Number the links so that those which become one another have one number."""
    least = np.arange(links)
    for rotation in rotations:
        now = least
        for _ in range(rotation.order - 1):
            now = now[rotation.links]
            least = np.minimum(least, now)
    numbers: NDArray[np.int64] = np.unique(least, return_inverse=True)[1]
    return numbers


def _rotate(topology: Topology, shift: int, block: int) -> Rotation | None:
    """Rotate each block of ranks by some, if the network looks the same then."""
    rank = np.arange(topology.ranks)
    ranks = rank // block * block + (rank % block + shift) % block
    nodes = _move_nodes(topology, ranks)
    if nodes is None or len(np.unique(nodes)) < len(nodes):
        return None
    speeds: tuple[NDArray[np.int64], ...] = (topology.bandwidth, topology.latency_ps)
    columns: tuple[NDArray[Any], ...] = (topology.link_src, topology.link_dst, *speeds)
    moved: tuple[NDArray[Any], ...] = (nodes[topology.link_src], nodes[topology.link_dst], *speeds)
    here, there = np.lexsort(moved), np.lexsort(columns)
    same = (np.array_equal(a[here], b[there]) for a, b in zip(moved, columns, strict=True))
    if not all(same):
        return None
    links = np.empty(topology.links, np.int32)
    links[here] = there
    order, every = block // shift, np.arange(topology.links, dtype=np.int32)
    now = every
    for _ in range(order):
        now = links[now]
    return Rotation(ranks.astype(np.int32), links, order) if np.array_equal(now, every) else None


def _move_nodes(topology: Topology, to: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Where every node comes to lie when ranks do so: switches follow those that they are linked to."""
    ranks, nodes = topology.ranks, topology.nodes
    moved = np.full(nodes, -1, np.int64)
    moved[:ranks] = to
    neighbours = [sorted(set(near)) for near in topology.neighbours]
    known = set(range(ranks))
    while len(known) < nodes:
        next_to = [
            node for node in range(ranks, nodes) if node not in known and known & set(neighbours[node])
        ]
        if not next_to:
            return None
        places: dict[tuple[int, ...], list[int]] = {}
        for node in next_to:
            places.setdefault(tuple(near for near in neighbours[node] if near in known), []).append(node)
        for node in next_to:
            wanted = tuple(sorted(int(moved[near]) for near in neighbours[node] if near in known))
            free = places.get(wanted)
            if not free:
                return None
            moved[node] = free.pop(0)
        known.update(next_to)
    return moved
