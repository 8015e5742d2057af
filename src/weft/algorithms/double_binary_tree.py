"""NCCL's double binary tree: two trees, the inner ranks of one the leaves of the other.

Every rank of a single binary tree either forwards everything twice or nothing at all. Two trees with the
roles swapped, half of the data each, use every rank's links evenly at logarithmic depth.

`weft.algorithms.common.mirrored_trees` makes the two trees over 0 .. n-1.

Edges of both trees are coloured with two colours such that no rank sends twice, or receives twice, in one
colour. That is always possible: a rank has at most one parent per tree and two children in all, so senders
and receivers form a bipartite graph of degree two. Colour c is used in steps of parity c; each tree takes a
new chunk every two.

References
----------
.. [1] S. Jeaugey, "Massively scale your deep learning training with NCCL 2.4", NVIDIA, 2019.
.. [2] P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
   scan", Parallel Computing 35(12), 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.host_groups import check_count, check_rows, host_major
from weft.algorithms.common.mirrored_trees import (
    NO_PARENT,
    binary_tree,
    mirrored_trees,
    relabel,
    tree_depths,
)
from weft.schedule import Op, ScheduleBuilder, passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "double_binary_tree"

VARIANTS = ({"chunks": 1},)
"""Further options that `weft.plan` tries."""


def all_reduce(topology: Topology, *, chunks: int | None = None, overlap: bool = True) -> Schedule:
    """Sum up both trees and spread the sums down again, pipelined.

    Parameters
    ----------
    topology
        Any cluster. Ranks take their places in host-major order, so that most edges stay inside hosts.
    chunks
        Chunks per tree. A chunk follows the one before it two steps later, up and down at the same time, so
        that filling the pipeline costs about ``2 log2 N / chunks`` of the whole. The default, 8 ceil(log2 N),
        keeps that to a quarter; segments cut further without more rows.
    overlap
        Whether chunks go down while others still go up. Without, all is summed first.

    Returns
    -------
    Schedule
        ``2 * chunks`` chunks; the first half goes by the first tree. Reduces and copies overlap, so
        `weft.schedule.halves` does not apply.

    Raises
    ------
    InputError
        If `chunks` is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("switch:8"), chunks=4)
    <Schedule double_binary_tree all_reduce on switch:8: 8 chunks, 17 steps, 112 transfers>

    Notes
    -----
    Steps: at most 2 (chunks - 1) + 4 ceil(log2 N). In a step a rank sends at most once up and once down,
    and receives likewise. Each rank sends and receives at most twice the buffer in all; the root of a tree,
    half of it less.
    """
    count = _chunks_per_tree(topology, chunks)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=2 * count)
    order = host_major(topology)
    trees = mirrored_trees(topology.ranks)
    colours = _colour(trees)
    ups = [_steps_up(parent, colour) for parent, colour in zip(trees, colours, strict=True)]
    summed = max(int(up.max()) for up in ups) + 2 * count - 1
    for number, (parent, colour, up) in enumerate(zip(trees, colours, ups, strict=True)):
        chunk = number * count + np.arange(count)
        _add(builder, order, parent, up, chunk, Op.REDUCE)
        start = int(up[parent == int(np.argmin(parent))].max()) + 1 if overlap else summed
        _add(builder, order, parent, _steps_down(parent, colour, start), chunk, Op.COPY)
    return builder.build()


def broadcast(topology: Topology, *, root: int = 0, chunks: int | None = None) -> Schedule:
    """Send alternate chunks down two trees that share only the root.

    The root is number 0 of both trees, where it has one child each; among the others the inner ranks of one
    tree are leaves of the other.

    Parameters
    ----------
    topology
        Any cluster. Ranks follow the root in host-major order, cyclically.
    root
        Rank that has the buffer.
    chunks
        Chunks per tree, 8 ceil(log2 N) by default; see `all_reduce`.

    Returns
    -------
    Schedule
        ``2 * chunks`` chunks.

    Raises
    ------
    ScheduleError
        If `root` is not a rank.
    InputError
        If `chunks` is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broadcast(load_topology("switch:8"), root=5, chunks=4)
    <Schedule double_binary_tree broadcast on switch:8: 8 chunks, 12 steps, 56 transfers>

    Notes
    -----
    Steps: at most 2 (chunks - 1) + 2 ceil(log2 N). In a step a rank sends at most once and receives at
    most once. Every rank sends the buffer at most once, the root exactly once.
    """
    count = _chunks_per_tree(topology, chunks)
    builder = ScheduleBuilder(topology, "broadcast", _NAME, chunks=2 * count, root=root)
    order = host_major(topology)
    order = np.roll(order, -int(np.flatnonzero(order == root)[0]))
    trees = _rooted_trees(topology.ranks)
    for number, (parent, colour) in enumerate(zip(trees, _colour(trees), strict=True)):
        chunk = number * count + np.arange(count)
        _add(builder, order, parent, _steps_down(parent, colour, 0), chunk, Op.COPY)
    return builder.build()


def reduce(topology: Topology, *, root: int = 0, chunks: int | None = None) -> Schedule:
    """Sum up the two trees of `broadcast`.

    Result and errors are those of `broadcast`.

    Parameters
    ----------
    topology
        Any cluster. Ranks follow the root in host-major order, cyclically.
    root
        Rank that gets the sum.
    chunks
        Chunks per tree, 8 ceil(log2 N) by default; see `all_reduce`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce(load_topology("switch:8"), root=5, chunks=4)
    <Schedule double_binary_tree reduce on switch:8: 8 chunks, 12 steps, 56 transfers>

    Notes
    -----
    Steps: at most 2 (chunks - 1) + 2 ceil(log2 N). In a step a rank sends at most once and receives at
    most once. Every rank receives the buffer at most once, the root exactly once.
    """
    return passes.reverse(broadcast(topology.transpose(), root=root, chunks=chunks))


def _chunks_per_tree(topology: Topology, chunks: int | None) -> int:
    count = 8 * (topology.ranks - 1).bit_length() if chunks is None else check_count(_NAME, "chunks", chunks)
    check_rows(_NAME, 4 * topology.ranks * count)
    return count


def _rooted_trees(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Make a pair with the same root 0, the others mirrored where that swaps odd and even, else shifted."""
    first, number = binary_tree(size), np.arange(size)
    label = (size - number) % size if size % 2 else number - 1
    if size % 2 == 0:
        label[0], label[1] = 0, size - 1
    return first, relabel(first, label)


def _colour(trees: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Colour, 0 or 1, of the edge from each number to its parent, a row per tree.

    Two edges with the same child, or with the same parent, get different colours. Each edge meets at most one
    other at either end, so the edges form chains and cycles, which are even because their ends alternate.
    """
    size = len(trees[0])
    neighbours: list[list[int]] = [[] for _ in range(2 * size)]
    at_parent: dict[int, int] = {}
    for edge, parent in enumerate(np.concatenate(trees).tolist()):
        if parent == NO_PARENT:
            continue
        other = at_parent.setdefault(parent, edge)
        for meets, exists in (
            (other, other != edge),
            (edge - size, edge >= size and trees[0][edge - size] >= 0),
        ):
            if exists:
                neighbours[edge].append(meets)
                neighbours[meets].append(edge)
    colour = [-1] * (2 * size)
    for start in range(2 * size):
        stack = [start] if colour[start] < 0 else []
        colour[start] = max(colour[start], 0)
        while stack:
            edge = stack.pop()
            for meets in neighbours[edge]:
                if colour[meets] < 0:
                    colour[meets] = 1 - colour[edge]
                    stack.append(meets)
    return np.array(colour, np.int64).reshape(2, size)


def _steps_up(parent: NDArray[np.int64], colour: NDArray[np.int64]) -> NDArray[np.int64]:
    """Step in which each number sends its first chunk up: after its children did, in its parity."""
    depth = tree_depths(parent)
    ready = np.zeros_like(parent)
    step = np.zeros_like(parent)
    for level in range(int(depth.max()), 0, -1):
        here = np.flatnonzero(depth == level)
        step[here] = ready[here] + (ready[here] + colour[here]) % 2
        np.maximum.at(ready, parent[here], step[here] + 1)
    return step


def _steps_down(parent: NDArray[np.int64], colour: NDArray[np.int64], start: int) -> NDArray[np.int64]:
    """Step in which each number receives its first chunk; the root has it before `start`."""
    depth = tree_depths(parent)
    step = np.full_like(parent, start - 1)
    for level in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == level)
        ready = step[parent[here]] + 1
        step[here] = ready + (ready + colour[here]) % 2
    return step


def _add(
    builder: ScheduleBuilder,
    order: NDArray[np.int64],
    parent: NDArray[np.int64],
    first_step: NDArray[np.int64],
    chunk: NDArray[np.int64],
    op: Op,
) -> None:
    """Add a tree's rows: up for reduces, down for copies; a chunk follows another after two steps."""
    child = np.flatnonzero(parent >= 0)[:, None]
    ends = order[child], order[parent[child]]
    src, dst = ends if op == Op.REDUCE else ends[::-1]
    builder.add(step=first_step[child] + 2 * np.arange(len(chunk)), chunk=chunk, src=src, dst=dst, op=op)
