"""BlueConnect: one ring reduce-scatter per level of the network, then the all-gathers in reverse.

The inner, fast level takes the whole buffer and leaves a part of 1/n to the next, so that slow links carry
little. Levels are the dimensions of a grid, or the ranks inside a group and the groups themselves.

References
----------
.. [1] M. Cho, U. Finkler, D. Kung, "BlueConnect: Novel hierarchical all-reduce on multi-tiered network
   for deep learning", MLSys 2019.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.host_groups import check_count, check_rows, host_major, require_groups
from weft.errors import InputError, UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "blueconnect"


def all_reduce(topology: Topology, *, levels: Sequence[int] | None = None) -> Schedule:
    """Reduce-scatter inside each level, innermost first, then all-gather in reverse.

    Parameters
    ----------
    topology
        A grid, or a cluster whose groups are equally large.
    levels
        Ranks per level, innermost first; their product is the number of ranks, and ranks count through them
        in host-major order. By default the dimensions of the grid, last one first, or the size of a group and
        the number of groups.

    Returns
    -------
    Schedule
        One chunk per rank, numbered so that each rank sends one message per step. `weft.schedule.halves`
        applies.

    Raises
    ------
    UnsupportedError
        If there are no levels, or groups differ in size.
    InputError
        If `levels` does not multiply to the number of ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("dgx-h100:4@fabric=flat"))
    <Schedule blueconnect all_reduce on dgx-h100:4@fabric=flat: 32 chunks, 20 steps, 1984 transfers>
    >>> all_reduce(load_topology("hosts:8,4,2"))
    Traceback (most recent call last):
    weft.errors.UnsupportedError: blueconnect: groups have 8, 4 and 2 ranks, but every level must divide them
    evenly; use hierarchical, which takes uneven groups

    Notes
    -----
    Steps: 2 * sum of (n_i - 1). At level i each rank sends 2 (n_i - 1)/n_i of 1/(n_1 .. n_{i-1}) of the
    buffer, all levels together 2 (N - 1)/N. On a torus a link of dimension i carries just that, in one
    direction.
    """
    return _by_levels(topology, "all_reduce", (Op.REDUCE, Op.COPY), levels)


def reduce_scatter(topology: Topology, *, levels: Sequence[int] | None = None) -> Schedule:
    """Reduce-scatter inside each level, innermost first.

    Parameters
    ----------
    topology, levels
        As in `all_reduce`.

    Returns
    -------
    Schedule
        Ownership is prescribed, so that inner levels send single chunks.

    Raises
    ------
    UnsupportedError, InputError
        As in `all_reduce`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("torus:4x4"))
    <Schedule blueconnect reduce_scatter on torus:4x4: 16 chunks, 6 steps, 240 transfers>

    Notes
    -----
    Steps: sum of (n_i - 1). Each rank sends (N - 1)/N of the buffer, split over the levels as in
    `all_reduce`.
    """
    return _by_levels(topology, "reduce_scatter", (Op.REDUCE,), levels)


def all_gather(topology: Topology, *, levels: Sequence[int] | None = None) -> Schedule:
    """All-gather inside each level, outermost first.

    Parameters, result, errors and cost are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("torus:4x4"))
    <Schedule blueconnect all_gather on torus:4x4: 16 chunks, 6 steps, 240 transfers>
    """
    return _by_levels(topology, "all_gather", (Op.COPY,), levels)


def _by_levels(
    topology: Topology, collective: str, phases: tuple[Op, ...], levels: Sequence[int] | None
) -> Schedule:
    sizes, placement = _find_levels(topology, levels)
    builder = ScheduleBuilder(topology, collective, _NAME)
    shard = placement
    if collective == "all_reduce":
        # Each level cuts a range: position c_1 + n_1 * (c_2 + n_2 * ..) owns chunk (c_1 * n_2 + c_2) * n_3 ..
        shard = np.arange(topology.ranks).reshape(sizes).transpose().ravel()
    step = 0
    for op in phases:
        every = range(len(sizes))
        for level in every if op == Op.REDUCE else reversed(every):
            _add_rings(builder, sizes, level, step, placement, shard, op)
            step += sizes[level] - 1
    builder.note(f"levels, innermost first: {' x '.join(map(str, sizes))}")
    return builder.build()


def _find_levels(topology: Topology, levels: Sequence[int] | None) -> tuple[list[int], NDArray[np.int64]]:
    """Size of each level, innermost first, and the rank at each position, innermost level fastest."""
    if levels is not None:
        sizes = [check_count(_NAME, "levels", size) for size in levels]
        if math.prod(sizes) != topology.ranks:
            msg = f"{_NAME}: levels {' x '.join(map(str, sizes))} do not make {topology.ranks} ranks"
            raise InputError(msg)
        placement = host_major(topology)
    elif topology.grid is not None:
        sizes, placement = list(topology.grid.shape[::-1]), np.arange(topology.ranks)
    else:
        groups = require_groups(topology, _NAME, "use halving_doubling or ring")
        counts = [len(group) for group in groups]
        if len(set(counts)) > 1:
            some = [str(count) for count in counts[:8]] + ["more"] * (len(counts) > 8)
            sizes_text = f"{', '.join(some[:-1])} and {some[-1]}"
            reason = f"groups have {sizes_text} ranks, but every level must divide them evenly"
            raise UnsupportedError(_NAME, reason, "use hierarchical, which takes uneven groups")
        sizes, placement = [counts[0], len(groups)], host_major(topology)
    check_rows(_NAME, topology.ranks * (topology.ranks - 1))
    return [size for size in sizes if size > 1] or [1], placement


def _add_rings(
    builder: ScheduleBuilder,
    sizes: list[int],
    level: int,
    step: int,
    placement: NDArray[np.int64],
    shard: NDArray[np.int64],
    op: Op,
) -> None:
    """One phase of a ring along a level: everyone sends its successor in it the shards of one owner a turn.

    Owners agree with the sender in all inner levels, which are settled, and run through all outer ones.
    """
    inner, size = math.prod(sizes[:level]), sizes[level]
    here = np.arange(len(placement))
    coordinate, settled = here // inner % size, here % inner
    successor = here + ((coordinate + 1) % size - coordinate) * inner
    outer = np.arange(0, len(placement), inner * size)
    order = np.argsort(placement)
    src, dst = placement[order, None], placement[successor[order], None]
    for turn in range(size - 1):
        # The sum for a member starts at its successor and ends with itself.
        behind = turn + (op == Op.REDUCE)
        owner = settled + (coordinate - behind) % size * inner
        chunk = np.sort(shard[owner[:, None] + outer], axis=1)
        builder.add(step=step + turn, chunk=chunk[order], src=src, dst=dst, op=op)
