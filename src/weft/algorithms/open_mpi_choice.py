"""What Open MPI would run: the choice of its component coll/tuned, by number of ranks and size.

The tables are those of the fixed decision rules for commutative operations. They are the same in Open MPI
4.1.6 and 5.0.10. In 4.1 nothing stands above them. In 5.0 they decide among the ranks of one host; across
hosts the component coll/han takes their place, which is not here. Messages are not cut: the rules ask for
segments of size zero, which makes the segmented ring a plain one.

Sizes are counted in elements of 4 bytes where the rules count elements. Ranks take part in their order. The
first note of a schedule names the algorithm that was chosen.

References
----------
.. [1] open-mpi/ompi v5.0.10: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c (allreduce_intra_dec_fixed,
   allgather_intra_dec_fixed), ompi/mca/coll/base/coll_base_allreduce.c, coll_base_allgather.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.folded_rounds import add_rabenseifner, add_recursive_doubling, core_size
from weft.algorithms.common.gather_rounds import add_bruck, add_neighbour_exchange
from weft.algorithms.common.halving_rounds import add_half
from weft.algorithms.common.host_groups import check_count, check_rows
from weft.algorithms.common.ring_rounds import add_ring_round
from weft.errors import UnsupportedError
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "open_mpi_choice"
_ELEMENT: Final = 4
_USUAL_BYTES: Final = 64 << 20
"""Size of a buffer whose size is not known: large."""

_NONOVERLAPPING: Final = "nonoverlapping"
_DOUBLING: Final = "recursive doubling"
_RING: Final = "ring"
_RABENSEIFNER: Final = "rabenseifner"
_BRUCK: Final = "bruck"
_NEIGHBOUR: Final = "neighbour exchange"

_BySize = tuple[tuple[int | None, str], ...]
_Rules = tuple[tuple[int | None, _BySize], ...]
"""For ranks below a number, or any: for bytes below a number, or any, an algorithm."""

_ALL_REDUCE: Final[_Rules] = (
    (
        4,
        (
            (8, _RING),
            (4096, _DOUBLING),
            (8192, _RING),
            (16384, _DOUBLING),
            (262144, _RING),
            (None, _RABENSEIFNER),
        ),
    ),
    (8, ((16, _RING), (8192, _DOUBLING), (None, _RABENSEIFNER))),
    (16, ((8192, _DOUBLING), (None, _RABENSEIFNER))),
    (32, ((64, _RING), (4096, _DOUBLING), (None, _RABENSEIFNER))),
    (64, ((128, _RING), (None, _RABENSEIFNER))),
    (128, ((262144, _DOUBLING), (None, _RABENSEIFNER))),
    (256, ((131072, _NONOVERLAPPING), (262144, _DOUBLING), (None, _RABENSEIFNER))),
    (512, ((4096, _NONOVERLAPPING), (None, _RABENSEIFNER))),
    (2048, ((2048, _NONOVERLAPPING), (16384, _DOUBLING), (None, _RABENSEIFNER))),
    (4096, ((2048, _NONOVERLAPPING), (4096, _RING), (16384, _DOUBLING), (None, _RABENSEIFNER))),
    (None, ((2048, _NONOVERLAPPING), (16384, _RING), (32768, _DOUBLING), (None, _RABENSEIFNER))),
)
"""The segmented ring of the rules stands as a ring."""

_TO_NEIGHBOURS: Final[_BySize] = ((131072, _NEIGHBOUR), (524288, _RING), (1048576, _NEIGHBOUR), (None, _RING))
_ALL_GATHER: Final[_Rules] = (
    (32, ((None, _DOUBLING),)),
    (64, ((1024, _DOUBLING), (65536, _NEIGHBOUR), (None, _RING))),
    (128, ((512, _DOUBLING), (65536, _NEIGHBOUR), (None, _RING))),
    (256, ((512, _DOUBLING), *_TO_NEIGHBOURS)),
    (512, ((32, _DOUBLING), (128, _BRUCK), (1024, _DOUBLING), *_TO_NEIGHBOURS)),
    (1024, ((64, _DOUBLING), (256, _BRUCK), (2048, _DOUBLING), (None, _NEIGHBOUR))),
    (
        2048,
        (
            (4, _DOUBLING),
            (8, _BRUCK),
            (16, _DOUBLING),
            (32, _BRUCK),
            (256, _DOUBLING),
            (512, _BRUCK),
            (4096, _DOUBLING),
            (None, _NEIGHBOUR),
        ),
    ),
    (4096, ((32, _BRUCK), (128, _DOUBLING), (512, _BRUCK), (4096, _DOUBLING), (None, _NEIGHBOUR))),
    (
        None,
        (
            (2, _DOUBLING),
            (8, _BRUCK),
            (16, _DOUBLING),
            (512, _BRUCK),
            (4096, _DOUBLING),
            (None, _NEIGHBOUR),
        ),
    ),
)
"""By bytes of one rank's shard."""


def all_reduce(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Sum every rank's buffer at every rank, as Open MPI would at this size.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the buffer; 64 MiB if it is not given.

    Returns
    -------
    Schedule
        By recursive doubling, a ring, or Rabenseifner's algorithm on a power of two of the ranks.

    Raises
    ------
    UnsupportedError
        Where Open MPI reduces to one rank and broadcasts: from 128 ranks on, for small buffers.
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> switch = load_topology("switch:8")
    >>> [all_reduce(switch, size_bytes=size).notes[0] for size in (1024, 1 << 20)]
    ['recursive doubling', 'rabenseifner']

    Notes
    -----
    Steps: log2 N and twice as many for the first and the last, for a power of two; 2(N-1) for the ring.
    """
    size = _given_size(size_bytes)
    ranks = topology.ranks
    chosen = _look_up(_ALL_REDUCE, ranks, size)
    elements = -(-size // _ELEMENT)
    if chosen == _RING and elements < ranks:
        chosen = _DOUBLING
    if chosen == _RABENSEIFNER and elements < core_size(ranks):
        chosen = "basic linear"
    placement = np.arange(ranks)
    chunks = {_DOUBLING: 1, _RABENSEIFNER: core_size(ranks)}.get(chosen, ranks)
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=chunks)
    builder.note(chosen)
    if chosen == _DOUBLING:
        add_recursive_doubling(builder, placement)
    elif chosen == _RABENSEIFNER:
        add_rabenseifner(builder, placement, halved=True)
    elif chosen == _RING:
        check_rows(_NAME, 2 * ranks * (ranks - 1))
        # Rank r sends block r first, so that the sum of block r ends at the rank before.
        step = add_ring_round(builder, range(ranks), Op.REDUCE, ahead=1)
        add_ring_round(builder, range(ranks), Op.COPY, step=step, ahead=1)
    else:
        reason = f"for {size} bytes Open MPI reduces to one rank and broadcasts ({chosen}): not modelled"
        raise UnsupportedError(_NAME, reason)
    return builder.build()


def all_gather(topology: Topology, *, size_bytes: int | None = None) -> Schedule:
    """Hand every rank's shard to every rank, as Open MPI would at this size.

    Parameters
    ----------
    topology
        Any cluster.
    size_bytes
        Size of the gathered buffer; 64 MiB if it is not given. Open MPI decides by the size of one shard.

    Returns
    -------
    Schedule
        By recursive doubling, Bruck's algorithm where the number of ranks is no power of two, exchange with
        neighbours, or a ring where that number is odd.

    Raises
    ------
    InputError
        If the size is below 1.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [all_gather(load_topology(f"switch:{ranks}")).notes[0] for ranks in (8, 6, 64)]
    ['recursive doubling', 'bruck', 'ring']

    Notes
    -----
    Steps: log2 N, N/2 for neighbours, N-1 for the ring. Each rank sends (N-1)/N of the gathered buffer.
    """
    ranks = topology.ranks
    chosen = _look_up(_ALL_GATHER, ranks, -(-_given_size(size_bytes) // ranks))
    if chosen == _DOUBLING and ranks != core_size(ranks):
        chosen = _BRUCK
    if chosen == _NEIGHBOUR and ranks % 2:
        chosen = _RING
    check_rows(_NAME, ranks * (ranks - 1))
    builder = ScheduleBuilder(topology, "all_gather", _NAME)
    builder.note(chosen)
    if chosen == _DOUBLING:
        add_half(builder, np.arange(ranks), np.arange(ranks), Op.COPY, order="farthest")
    elif chosen == _BRUCK:
        add_bruck(builder, ranks)
    elif chosen == _NEIGHBOUR:
        add_neighbour_exchange(builder, ranks)
    else:
        add_ring_round(builder, range(ranks), Op.COPY)
    return builder.build()


def _given_size(size_bytes: int | None) -> int:
    return _USUAL_BYTES if size_bytes is None else check_count(_NAME, "size_bytes", size_bytes)


def _look_up(rules: _Rules, ranks: int, size_bytes: int) -> str:
    """Find the algorithm of the first rule whose limits are above both numbers, or that has none."""
    by_size = next(found for limit, found in rules if limit is None or ranks < limit)
    return next(found for limit, found in by_size if limit is None or size_bytes < limit)
