"""What MPICH would run: the choice of its built-in selection file, by number of ranks and size.

MPICH 4.0 to 5.0.1 choose by a tree that is compiled in (``generic.json``); the variable
``MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE`` (2048 bytes), which decided in MPICH 3, decides in these releases only
for groups and some non-blocking calls. The tree has recursive doubling for all-reduces up to 8 bytes.

On several hosts of several ranks MPICH sums inside each host first (``composition_alpha``), and does the same
between one rank of each host only. That is not here: schedules are those among all ranks, which
``MPIR_CVAR_ALLREDUCE_COMPOSITION=2`` asks for. Sizes are counted in elements of 4 bytes where MPICH counts
elements. Ranks take part in their order, messages are not cut, and the first note of a schedule names the
algorithm that was chosen.

References
----------
.. [1] pmodels/mpich v5.0.1: maint/tuning/coll/mpir/generic.json, maint/tuning/coll/ch4/generic.json,
   src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c, src/mpi/coll/cvars.txt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.folded_rounds import add_rabenseifner, add_recursive_doubling, core_size
from weft.algorithms.common.gather_rounds import add_bruck
from weft.algorithms.common.halving_rounds import add_half
from weft.algorithms.common.host_groups import check_count, check_rows
from weft.algorithms.common.ring_rounds import add_ring_round
from weft.algorithms.common.scatter_rounds import add_binomial, staggered
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "mpich_choice"
_ELEMENT: Final = 4
_USUAL_BYTES: Final = 64 << 20
"""Size of a buffer whose size is not known: large."""

_SHORT_ALL_REDUCE: Final = 8
_SHORT_BROADCAST: Final = 12288
_FEW_RANKS: Final = 8
_LONG: Final = 524288
_SHORT_BRUCK: Final = 81920


def all_reduce(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Sum every rank's buffer at every rank, as MPICH would at this size.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the buffer; 64 MiB if it is not given.

    Returns
    -------
    Schedule
        By recursive doubling or by Rabenseifner's algorithm, on a power of two of the ranks.

    Raises
    ------
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> schedule = all_reduce(load_topology("switch:6"), size_bytes=1 << 20)
    >>> schedule, schedule.notes[0]
    (<Schedule mpich_choice all_reduce on switch:6: 4 chunks, 6 steps, 40 transfers>, 'rabenseifner')

    Notes
    -----
    Steps: log2 N, or twice as many, and two more where N is no power of two.
    """
    size = _given_size(size_bytes)
    core = core_size(topology.ranks)
    short = size <= _SHORT_ALL_REDUCE or -(-size // _ELEMENT) < core
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=1 if short else core)
    placement = np.arange(topology.ranks)
    if short:
        builder.note("recursive doubling")
        add_recursive_doubling(builder, placement)
    else:
        builder.note("rabenseifner")
        add_rabenseifner(builder, placement, halved=False)
    return builder.build()


def reduce_scatter(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Sum every rank's buffer; rank r ends with the sum of the r-th shard.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the buffer of each rank; 64 MiB if it is not given.

    Returns
    -------
    Schedule
        By recursive halving below 512 KiB, else pairwise: every rank straight to every other, in turn.

    Raises
    ------
    UnsupportedError
        Below 512 KiB, if the number of ranks is no power of two.
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [reduce_scatter(load_topology("switch:8"), size_bytes=size).steps for size in (1024, 1 << 20)]
    [3, 7]

    Notes
    -----
    Steps: log2 N, or N-1 for pairwise. Each rank sends (N-1)/N of the buffer.
    """
    ranks = topology.ranks
    check_rows(_NAME, ranks * (ranks - 1))
    builder = ScheduleBuilder(topology, "reduce_scatter", _NAME)
    if _given_size(size_bytes) >= _LONG:
        builder.note("pairwise")
        step, src, dst = staggered(ranks)
        builder.add(step=step, chunk=dst, src=src, dst=dst, op=Op.REDUCE)
    elif ranks == core_size(ranks):
        builder.note("recursive halving")
        add_half(builder, np.arange(ranks), np.arange(ranks), Op.REDUCE, order="farthest")
    else:
        reason = f"MPICH's recursive halving below 512KiB is modelled for a power of two ranks, not {ranks}"
        raise UnsupportedError(_NAME, reason)
    return builder.build()


def all_gather(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Hand every rank's shard to every rank, as MPICH would at this size.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the gathered buffer; 64 MiB if it is not given.

    Returns
    -------
    Schedule
        Below 512 KiB by recursive doubling for a power of two ranks; below 80 KiB by Bruck's algorithm for
        others; by a ring beyond.

    Raises
    ------
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [all_gather(load_topology(f"switch:{n}"), size_bytes=1024).notes[0] for n in (8, 6)]
    ['recursive doubling', 'bruck']

    Notes
    -----
    Steps: log2 N, or N-1 for the ring. Each rank sends (N-1)/N of the gathered buffer.
    """
    ranks, size = topology.ranks, _given_size(size_bytes)
    check_rows(_NAME, ranks * (ranks - 1))
    builder = ScheduleBuilder(topology, "all_gather", _NAME)
    even = ranks == core_size(ranks)
    if size >= (_LONG if even else _SHORT_BRUCK):
        builder.note("ring")
        add_ring_round(builder, range(ranks), Op.COPY)
    elif even:
        builder.note("recursive doubling")
        add_half(builder, np.arange(ranks), np.arange(ranks), Op.COPY, order="farthest")
    else:
        builder.note("bruck")
        add_bruck(builder, ranks)
    return builder.build()


def broadcast(topology: Topology, *, root: int = 0, size_bytes: int | None = None) -> Schedule:
    """Copy the root's buffer to every rank, as MPICH would at this size.

    Parameters
    ----------
    topology
        Any cluster.
    root
        Where the buffer is.
    size_bytes
        Size of the buffer; 64 MiB if it is not given.

    Returns
    -------
    Schedule
        By a binomial tree up to 12 KiB or below 8 ranks. Else the tree scatters the buffer, and the ranks
        gather it again: by recursive doubling up to 512 KiB for a power of two ranks, by a ring beyond.

    Raises
    ------
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [broadcast(load_topology("switch:8"), size_bytes=size).notes[0] for size in (1024, 1 << 18, 1 << 20)]
    ['binomial tree', 'scatter, recursive doubling', 'scatter, ring']

    Notes
    -----
    Steps: log2 N for the tree, and as many, or N-1, for gathering.
    """
    ranks, size = topology.ranks, _given_size(size_bytes)
    whole = ranks < _FEW_RANKS or size <= _SHORT_BROADCAST
    builder = ScheduleBuilder(topology, "broadcast", _NAME, chunks=1 if whole else ranks, root=root)
    order = (np.arange(ranks) + root) % ranks
    step = add_binomial(builder, order, scatter=not whole)
    if whole:
        builder.note("binomial tree")
        return builder.build()
    check_rows(_NAME, ranks * (ranks + ranks.bit_length()))
    if size <= _LONG and ranks == core_size(ranks):
        builder.note("scatter, recursive doubling")
        add_half(builder, order, order, Op.COPY, order="farthest", step=step)
    else:
        builder.note("scatter, ring")
        add_ring_round(builder, order.tolist(), Op.COPY, step=step)
    return builder.build()


def _given_size(size_bytes: int | None) -> int:
    return _USUAL_BYTES if size_bytes is None else check_count(_NAME, "size_bytes", size_bytes)
