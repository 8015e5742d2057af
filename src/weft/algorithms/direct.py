"""Every rank straight to every other: what a full mesh or one fat switch wants.

In step k each rank sends to the rank k further on, so that no two ranks ever send to the same one at once.
The messages of a phase do not wait for one another, so latency is paid once per phase and not once per step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.host_groups import check_rows
from weft.algorithms.common.scatter_rounds import staggered
from weft.schedule import Op, ScheduleBuilder, passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "direct"


def all_reduce(topology: Topology) -> Schedule:
    """Each rank sums the chunk it owns, then sends the sum to everyone.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        One chunk per rank; `weft.schedule.halves` applies.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("fullmesh:4"))
    <Schedule direct all_reduce on fullmesh:4: 4 chunks, 6 steps, 24 transfers>

    Notes
    -----
    Steps: 2 (N - 1), but only two of them wait for others. Each rank sends and receives 2 (N - 1)/N of the
    buffer; on a full mesh each link carries 2/N of it.
    """
    return _phases(topology, "all_reduce", (Op.REDUCE, Op.COPY))


def reduce_scatter(topology: Topology) -> Schedule:
    """Everyone sends each rank its part of the r-th shard.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        Ownership is prescribed.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce_scatter(load_topology("fullmesh:4"))
    <Schedule direct reduce_scatter on fullmesh:4: 4 chunks, 3 steps, 12 transfers>

    Notes
    -----
    Steps: N - 1. On a full mesh each link carries 1/N of the buffer.
    """
    return _phases(topology, "reduce_scatter", (Op.REDUCE,))


def all_gather(topology: Topology) -> Schedule:
    """Each rank sends its shard to everyone.

    Parameters, result and cost are those of `reduce_scatter`.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("fullmesh:4"))
    <Schedule direct all_gather on fullmesh:4: 4 chunks, 3 steps, 12 transfers>
    """
    return _phases(topology, "all_gather", (Op.COPY,))


def all_to_all(topology: Topology) -> Schedule:
    """Each rank sends every other its own block.

    Parameters
    ----------
    topology
        Any cluster.

    Returns
    -------
    Schedule
        Chunk ``s * N + d`` goes from rank s to rank d; what a rank keeps for itself does not move.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_to_all(load_topology("fullmesh:4"))
    <Schedule direct all_to_all on fullmesh:4: 16 chunks, 3 steps, 12 transfers>

    Notes
    -----
    Steps: N - 1. Each rank sends and receives (N - 1)/N of its buffer; on a full mesh each link carries 1/N
    of it.
    """
    builder = ScheduleBuilder(topology, "all_to_all", _NAME)
    step, src, dst = _meetings(topology.ranks)
    builder.add(step=step, chunk=src * topology.ranks + dst, src=src, dst=dst, op=Op.COPY)
    return builder.build()


def broadcast(topology: Topology, *, root: int = 0) -> Schedule:
    """Hand each other rank one chunk; these pass them on to one another.

    A star, the root sending the whole buffer to everyone, would load the root's links N - 1 times as much.

    Parameters
    ----------
    topology
        Any cluster.
    root
        Rank that has the buffer.

    Returns
    -------
    Schedule
        N - 1 chunks.

    Raises
    ------
    ScheduleError
        If `root` is not a rank.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> broadcast(load_topology("fullmesh:4"), root=2)
    <Schedule direct broadcast on fullmesh:4: 3 chunks, 5 steps, 9 transfers>

    Notes
    -----
    Steps: 2 N - 3. The root sends the buffer once, every other rank (N - 2)/(N - 1) of it; on a full mesh
    each link carries 1/(N - 1) of it.
    """
    others = topology.ranks - 1
    builder = ScheduleBuilder(topology, "broadcast", _NAME, chunks=others, root=root)
    rank = (root + 1 + np.arange(others)) % topology.ranks
    step, owner, other = _meetings(others)
    builder.add(step=np.arange(others), chunk=np.arange(others), src=root, dst=rank, op=Op.COPY)
    builder.add(step=others + step, chunk=owner, src=rank[owner], dst=rank[other], op=Op.COPY)
    return builder.build()


def reduce(topology: Topology, *, root: int = 0) -> Schedule:
    """Let each other rank sum one chunk and send it to the root: `broadcast` backwards.

    Result and errors are those of `broadcast`.

    Parameters
    ----------
    topology
        Any cluster.
    root
        Rank that gets the sum.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> reduce(load_topology("fullmesh:4"), root=2)
    <Schedule direct reduce on fullmesh:4: 3 chunks, 5 steps, 9 transfers>

    Notes
    -----
    Steps: 2 N - 3. The root receives the buffer once, every other rank (N - 2)/(N - 1) of it; on a full mesh
    each link carries 1/(N - 1) of it.
    """
    return passes.reverse(broadcast(topology.transpose(), root=root))


def _meetings(ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    check_rows(_NAME, ranks * (ranks - 1))
    return staggered(ranks)


def _phases(topology: Topology, collective: str, phases: tuple[Op, ...]) -> Schedule:
    builder = ScheduleBuilder(topology, collective, _NAME)
    step, src, dst = _meetings(topology.ranks)
    for index, op in enumerate(phases):
        chunk = dst if op == Op.REDUCE else src
        builder.add(step=index * len(step) + step, chunk=chunk, src=src, dst=dst, op=op)
    return builder.build()
