"""Gloo's ring: chunks cut into segments of at most 1 MiB, ranks in their order.

This is what ``gloo::allreduce`` runs unless it is told otherwise, so it is PyTorch's all-reduce on CPUs. A
rank sends to the rank below it, and its all-gather to the rank above it. The buffer has a chunk for each
rank, and a chunk has two segments or more, each of at most 1 MiB, so that one segment is summed while the
next one arrives.

The schedule has a step for each segment. Gloo has at most two of them on their way, and starts handing out
when all sums of a rank are there; the simulator does without either. Of buffers so large that a schedule
would have more than a million transfers, segments are larger here than Gloo's: their time is that of the
bytes, and the table would fill gigabytes.

References
----------
.. [1] facebookincubator/gloo cc44198 (May 2025): gloo/allreduce.cc (ring), gloo/allreduce.h
   (kMaxSegmentSize), gloo/allgather.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.algorithms.common.host_groups import check_count, check_rows
from weft.algorithms.common.ring_rounds import add_ring_round
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "gloo_ring"
_LONGEST_SEGMENT: Final = 1 << 20
_FEWEST_SEGMENTS: Final = 2
_MOST_ROWS: Final = 1 << 20


def all_reduce(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Sum every rank's buffer at every rank, once round the ring and once more.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the buffer, which decides how many segments there are; without it, two for each chunk.
        Segments are of at most 1 MiB, and larger where there would be more than a million transfers.

    Returns
    -------
    Schedule
        One chunk for each segment.

    Raises
    ------
    InputError
        If the size is below 1.
    LimitError
        If the table of transfers would be too long.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("switch:4"), size_bytes=64 << 20)
    <Schedule gloo_ring all_reduce on switch:4: 64 chunks, 96 steps, 384 transfers>

    Notes
    -----
    Cost: 2(N-1) steps for each segment of a chunk; every rank sends 2(N-1)/N of the buffer.
    """
    ranks = topology.ranks
    parts = _FEWEST_SEGMENTS
    if size_bytes is not None:
        check_count(_NAME, "size_bytes", size_bytes)
        most = _MOST_ROWS // max(1, 2 * ranks * (ranks - 1))
        parts = max(parts, min(most, -(-size_bytes // (_LONGEST_SEGMENT * ranks))))
    return _round_trips(topology, "all_reduce", list(range(ranks))[::-1], (Op.REDUCE, Op.COPY), parts)


def all_gather(topology: Topology) -> Schedule:
    """Hand every rank's shard to every rank, in two halves.

    Parameters
    ----------
    topology
        Any cluster.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_gather(load_topology("switch:4"))
    <Schedule gloo_ring all_gather on switch:4: 8 chunks, 6 steps, 24 transfers>

    Notes
    -----
    Cost: 2(N-1) steps; every rank sends (N-1)/N of the gathered buffer.
    """
    return _round_trips(topology, "all_gather", list(range(topology.ranks)), (Op.COPY,), _FEWEST_SEGMENTS)


def _round_trips(
    topology: Topology, collective: str, order: list[int], rounds: tuple[Op, ...], parts: int
) -> Schedule:
    check_rows(_NAME, len(rounds) * len(order) * (len(order) - 1) * parts)
    builder = ScheduleBuilder(topology, collective, _NAME, chunks=len(order) * parts)
    step = 0
    for op in rounds:
        step = add_ring_round(builder, order, op, step=step, parts=parts)
    return builder.build()
