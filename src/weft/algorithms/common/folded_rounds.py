"""Recursive doubling and Rabenseifner's algorithm as MPI libraries run them: on a power of two of the ranks.

With N ranks, p the largest power of two up to N and x = N - p, the first 2x ranks pair up. One of each pair
hands its data to the other before the exchange and gets the result after it; the other and all further ranks
are the core, which does the exchange. `weft.algorithms.common.halving_rounds` needs no such folding, and
sends less where N is no power of two; what is here is for those who fold.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.algorithms.common.halving_rounds import add_half, contiguous_shards
from weft.schedule import Op

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import ScheduleBuilder


class Folding(NamedTuple):
    """Ranks that are folded away, their partners in the same order, and all that take part."""

    idle: NDArray[np.int64]
    busy: NDArray[np.int64]
    core: NDArray[np.int64]


def core_size(ranks: int) -> int:
    """Largest power of two up to the number of ranks.

    Examples
    --------
    >>> [core_size(ranks) for ranks in (2, 3, 8, 15)]
    [2, 2, 8, 8]
    """
    return 1 << (ranks.bit_length() - 1)


def fold(placement: NDArray[np.int64], *, keep_even: bool = False) -> Folding:
    """Fold ranks, given in their order, onto a power of two of them.

    Parameters
    ----------
    placement
        Rank at each position.
    keep_even
        Whether the even position of a pair stays; by default the odd one does.

    Examples
    --------
    >>> [part.tolist() for part in fold(np.arange(6))]
    [[0, 2], [1, 3], [1, 3, 4, 5]]
    """
    paired = 2 * (len(placement) - core_size(len(placement)))
    idle = placement[int(keep_even) : paired : 2]
    busy = placement[int(not keep_even) : paired : 2]
    return Folding(idle, busy, np.concatenate([busy, placement[paired:]]))


def add_recursive_doubling(builder: ScheduleBuilder, placement: NDArray[np.int64]) -> None:
    """Add an all-reduce that exchanges the whole buffer, a single chunk, with partners at 1, 2, 4 and so on.

    Parameters
    ----------
    builder
        Where the rows go.
    placement
        Rank at each position.
    """
    idle, busy, core = fold(placement)
    first = int(len(idle) > 0)
    doublings = len(core).bit_length() - 1
    builder.add(step=0, chunk=0, src=idle, dst=busy, op=Op.REDUCE)
    for bit in range(doublings):
        partner = core[np.arange(len(core)) ^ (1 << bit)]
        builder.add(step=first + bit, chunk=0, src=core, dst=partner, op=Op.REDUCE)
    builder.add(step=first + doublings, chunk=0, src=busy, dst=idle, op=Op.COPY)


def add_rabenseifner(builder: ScheduleBuilder, placement: NDArray[np.int64], *, halved: bool) -> None:
    """Add an all-reduce by halving and doubling, nearest partner first, in as many chunks as the core has.

    Parameters
    ----------
    builder
        Where the rows go.
    placement
        Rank at each position.
    halved
        How a pair adds its buffers. True: each of the two adds one half, then the odd one hands over its
        half, as in Open MPI. False: the even one hands over its whole buffer, as in MPICH.
    """
    idle, busy, core = fold(placement, keep_even=halved)
    chunk = np.arange(len(core))
    step = 0
    if len(idle):
        lower, upper = np.split(chunk, 2)
        away, stay = idle[:, None], busy[:, None]
        if halved:
            builder.add(step=0, chunk=lower, src=away, dst=stay, op=Op.REDUCE)
            builder.add(step=0, chunk=upper, src=stay, dst=away, op=Op.REDUCE)
            builder.add(step=1, chunk=upper, src=away, dst=stay, op=Op.COPY)
        else:
            builder.add(step=0, chunk=chunk, src=away, dst=stay, op=Op.REDUCE)
        step = 1 + int(halved)
    shard = contiguous_shards(len(core), "nearest")
    for op in (Op.REDUCE, Op.COPY):
        step = add_half(builder, core, shard, op, order="nearest", step=step)
    if len(idle):
        builder.add(step=step, chunk=chunk, src=busy[:, None], dst=idle[:, None], op=Op.COPY)
