"""Hamiltonian cycles: built on grids, searched for elsewhere.

A ring all-reduce is at its best where each hop is one link. A grid's cycle is known in advance; on other
graphs a search with a fixed budget looks for one, deterministically, and gives up rather than take long.
"""

from __future__ import annotations

from itertools import islice, permutations, product
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from weft.topology import Grid

_ROTATION_WORK: Final = 400_000
"""Path elements that rotation-extension may move; on small graphs a hundred times the square of the nodes."""

_EXPANSIONS: Final = 20_000
"""Nodes that backtracking may try."""

_CANDIDATE_WORK: Final = 1 << 20
"""Ranks in all candidate cycles of one grid together."""


def grid_cycles(grid: Grid) -> Iterator[NDArray[np.int64]]:
    """Orders of a grid's ranks that go from neighbour to neighbour all the way round.

    A grid without a Hamiltonian cycle (a line; a mesh of odd size in every dimension) gives orders with as
    few and short detours as possible. The same cycle comes turned, shifted and mirrored, so that a caller may
    take the one that avoids a failed link.

    Examples
    --------
    >>> from weft.topology import Grid
    >>> next(grid_cycles(Grid((2, 3), (False, False)))).tolist()
    [0, 3, 4, 5, 2, 1]
    """
    axes = [axis for axis, size in enumerate(grid.shape) if size > 1]
    shape = np.array([grid.shape[axis] for axis in axes])
    wrap = np.array([grid.wrap[axis] for axis in axes])
    bases = [_base_cycle(shape, wrap, order) for order in islice(_axis_orders(shape, wrap), 6)]
    strides = np.concatenate([np.cumprod(shape[:0:-1])[::-1], [1]])
    ranks = int(shape.prod())
    variants = product(_shifts(shape, wrap), islice(product((False, True), repeat=len(axes)), 16), bases)
    for shift, flips, base in islice(variants, max(8, _CANDIDATE_WORK // ranks)):
        turned = np.where(flips, shape - 1 - base, base)
        yield ((turned + shift) % shape) @ strides


def may_have_cycle(out: Sequence[Sequence[int]]) -> bool:
    """Whether a Hamiltonian cycle is not impossible for a simple reason.

    The reasons are a node without a way in and another way out, and two colours of unequal number in a
    two-coloured graph.

    Examples
    --------
    >>> may_have_cycle([[1], [0, 2], [1]])
    False
    """
    nodes = len(out)
    joined: list[set[int]] = [set(row) for row in out]
    for node, row in enumerate(out):
        for other in row:
            joined[other].add(node)
    enough = 2 if nodes > 2 else 1
    if not all(out) or any(len(others) < enough for others in joined):
        return False
    colour = [-1] * nodes
    colour[0] = 0
    queue = [0]
    for node in queue:
        for other in joined[node]:
            if colour[other] < 0:
                colour[other] = 1 - colour[node]
                queue.append(other)
            elif colour[other] == colour[node]:
                return True
    return 2 * sum(colour) == nodes


def find_cycle(out: Sequence[Sequence[int]]) -> list[int] | None:
    """Search a directed graph for a Hamiltonian cycle; None when the budget is spent or there is none.

    Examples
    --------
    >>> find_cycle([[1, 2], [2, 0], [3, 0], [0]])
    [3, 0, 1, 2]
    """
    if not may_have_cycle(out):
        return None
    both = _both_ways(out)
    if may_have_cycle(both):
        found = _rotate_and_extend(both, gap=1)
        if len(found) == len(out) and found[0] in both[found[-1]]:
            return found
    return _backtrack(out)


def find_long_path(out: Sequence[Sequence[int]]) -> list[int]:
    """Search a directed graph for a full-duplex path over all or most nodes that nearly closes.

    Examples
    --------
    >>> find_long_path([[1], [0, 2], [1]])
    [0, 1, 2]
    """
    return _rotate_and_extend(_both_ways(out), gap=2)


def _both_ways(out: Sequence[Sequence[int]]) -> list[list[int]]:
    sets = [set(row) for row in out]
    return [[other for other in row if node in sets[other]] for node, row in enumerate(out)]


def _axis_orders(shape: NDArray[np.int64], wrap: NDArray[np.bool_]) -> Iterator[tuple[int, ...]]:
    """Axis orders whose first axis can be the one that the cycle returns along."""
    odd = bool(shape.prod() % 2)
    for order in permutations(range(len(shape))):
        if len(shape) == 1 or (wrap[order[0]] or not wrap.any() if odd else shape[order[0]] % 2 == 0):
            yield order


def _shifts(shape: NDArray[np.int64], wrap: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    free = np.where(wrap, shape, 1)
    total = int(free.prod())
    picks = np.unique(np.linspace(0, total - 1, min(total, 64)).astype(np.int64))
    return list(np.stack(np.unravel_index(picks, tuple(free)), axis=1))


def _base_cycle(
    shape: NDArray[np.int64], wrap: NDArray[np.bool_], order: tuple[int, ...]
) -> NDArray[np.int64]:
    """Coordinates of a cycle on a grid: the first axis of `order` by a snake through all others."""
    first, *others = order
    size = int(shape[first])
    snake = _snake([int(shape[axis]) for axis in others])
    length = len(snake)
    if not others:
        pairs = [(i, 0) for i in (range(size) if wrap[first] else _folded(size))]
    elif size % 2 == 0:
        pairs = _even_cycle(size, length)
    elif wrap[first]:
        pairs = _odd_cycle(size, length)
    else:
        pairs = _odd_detour(size, length)
    along, place = np.array(pairs, np.int64).T
    coordinates = np.empty((len(along), len(shape)), np.int64)
    coordinates[:, first] = along
    coordinates[:, others] = snake[place]
    return coordinates


def _snake(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Coordinates of a path through a grid that turns round at every border: a reflected Gray code."""
    index = np.arange(int(np.prod(sizes, dtype=np.int64)))
    columns = []
    for size in reversed(sizes):
        index, digit = np.divmod(index, size)
        columns.append(np.where(index % 2, size - 1 - digit, digit))
    return np.stack(columns[::-1], axis=1) if columns else np.zeros((1, 0), np.int64)


def _folded(size: int) -> list[int]:
    return [*range(0, size, 2), *reversed(range(1, size, 2))]


def _even_cycle(size: int, length: int) -> list[tuple[int, int]]:
    pairs = [(i, 0) for i in range(size)]
    for i in reversed(range(size)):
        row = range(1, length)
        pairs += [(i, j) for j in (row if i % 2 else reversed(row))]
    return pairs


def _odd_cycle(size: int, length: int) -> list[tuple[int, int]]:
    """Once round at snake place 0, then to and fro through the others and home beside the start."""
    pairs = [(0, 0), *((i, 0) for i in reversed(range(1, size)))]
    for j in range(1, length):
        row = range(1, size)
        pairs += [(i, j) for i in (row if j % 2 else reversed(row))]
    return pairs + [(0, j) for j in reversed(range(1, length))]


def _odd_detour(size: int, length: int) -> list[tuple[int, int]]:
    """No cycle exists; all hops are one link, except a single one of two."""
    pairs = []
    for i in range(size - 1):
        pairs += [(i, 0), (i, 1)] if i % 2 else [(i, 1), (i, 0)]
    pairs += [(size - 1, 0), (size - 1, 1)]
    for j in range(2, length):
        row = range(1, size)
        pairs += [(i, j) for i in (row if j % 2 else reversed(row))]
    return pairs + [(0, j) for j in reversed(range(2, length))]


def _rotate_and_extend(adjacent: Sequence[Sequence[int]], *, gap: int) -> list[int]:
    """Posa's method on a full-duplex graph: extend the path, or turn its tail round and try again.

    Instead of rolling dice it turns towards the end that was an end least often. Gives a path over all nodes
    whose ends are `gap` links apart, 1 or 2, else the path it had when the budget was spent.
    """
    nodes = len(adjacent)
    path = [min(range(nodes), key=lambda node: len(adjacent[node]))]
    place = [-1] * nodes
    place[path[0]] = 0
    ended = [0] * nodes
    work = turns = 0
    while work < min(_ROTATION_WORK, 100 * nodes * nodes):
        end = path[-1]
        fresh = [node for node in adjacent[end] if place[node] < 0]
        if fresh:
            path.append(min(fresh, key=lambda node: (sum(place[o] < 0 for o in adjacent[node]), node)))
            place[path[-1]] = len(path) - 1
            continue
        closed = path[0] in adjacent[end]
        if len(path) == nodes and (closed or (gap == 2 and set(adjacent[end]) & set(adjacent[path[0]]))):
            break
        pivots = [place[node] for node in adjacent[end] if place[node] < len(path) - 2]
        exits = (
            [k for k, node in enumerate(path) if any(place[o] < 0 for o in adjacent[node])] if closed else []
        )
        turns += 1
        if exits:
            path, first = path[exits[0] + 1 :] + path[: exits[0] + 1], 0
        elif not pivots or turns % 64 == 0:
            path, first = path[::-1], 0
        else:
            first = 1 + min(pivots, key=lambda k: (ended[path[k + 1]], path[k]))
            ended[path[first]] += 1
            path[first:] = path[: first - 1 : -1]
        for k in range(first, len(path)):
            place[path[k]] = k
        work += len(path) - first + 20
    return path


def _backtrack(out: Sequence[Sequence[int]]) -> list[int] | None:
    """Depth-first, tightest node first; a node that nobody else can reach any more comes next."""
    nodes = len(out)
    into: list[list[int]] = [[] for _ in range(nodes)]
    for node, row in enumerate(out):
        for other in row:
            into[other].append(node)
    start = min(range(nodes), key=lambda node: len(out[node]))
    path, seen = [start], [node == start for node in range(nodes)]

    def choices() -> list[int]:
        fresh = [node for node in out[path[-1]] if not seen[node]]
        forced = [node for node in fresh if all(seen[before] for before in into[node])]
        if forced:
            return forced if len(forced) == 1 else []
        return sorted(
            fresh, key=lambda node: (sum(not seen[after] for after in out[node]), node), reverse=True
        )

    waiting = [choices()]
    for _ in range(_EXPANSIONS):
        while waiting and not waiting[-1]:
            waiting.pop()
            seen[path.pop()] = False
        if not waiting:
            return None
        path.append(waiting[-1].pop())
        seen[path[-1]] = True
        if len(path) == nodes and start in out[path[-1]]:
            return path
        waiting.append(choices())
    return None
