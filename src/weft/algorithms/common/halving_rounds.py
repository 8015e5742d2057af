"""Halving and doubling for any number of ranks, in ceil(log2 N) rounds and with (N - 1)/N of the buffer.

Positions 0 .. N-1 stand for ranks; position v owns shard v in the end. With N = m * 2^q and m odd, position
v = a * 2^q + b takes part in two kinds of rounds:

halving
    Inside a block of 2^q: v meets ``v XOR 2^s`` and hands over the shards of the half its partner is in, as
    Rabenseifner's algorithm does.
circulant
    Among the m positions with the same b: v sends to the one 2^k blocks further on, for shards that lie 2^k
    to 2^(k+1) - 1 blocks further on, k falling. Whatever a shard's distance, its binary digits are walked off
    one by one, so each shard leaves each position exactly once. For m = 1 there is no such round.

Both together send each of the N - 1 foreign shards once. Folding the surplus ranks onto a power of two
instead costs 2 more steps and up to twice the volume, 3-2 elimination up to half as much again; neither ends
with equal shards. An all-gather is the same rounds backwards.

References
----------
.. [1] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
   IJHPCA 19(1), 2005.
.. [2] R. Rabenseifner, J. L. Träff, "More efficient reduction algorithms for non-power-of-two number of
   processors in message-passing parallel systems", EuroPVM/MPI 2004.
.. [3] J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
   systems", IEEE TPDS 8(11), 1997.
.. [4] J. L. Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft.algorithms.common.host_groups import check_rows
from weft.schedule import Op

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import ScheduleBuilder

ORDERS: Final = ("nearest", "farthest")


def count_rounds(positions: int) -> int:
    """Count the rounds of one half: ceil(log2 N).

    Examples
    --------
    >>> [count_rounds(n) for n in (2, 3, 4, 6, 17, 24)]
    [1, 2, 2, 3, 5, 5]
    """
    return (positions - 1).bit_length()


def contiguous_shards(positions: int, order: str) -> NDArray[np.int64]:
    """Find numbers for the positions' shards such that every round sends consecutive ones.

    Nearest first decides a shard's leading digit by the lowest bit of its owner, hence bit-reversed numbers.
    Circulant rounds send a range modulo the number of blocks, which is one run or two.

    Examples
    --------
    >>> contiguous_shards(8, "nearest").tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    number = np.arange(positions)
    if order == "farthest":
        return number
    bits, blocks = _factor(positions)
    inside, block = number & ((1 << bits) - 1), number >> bits
    reverse = np.zeros_like(number)
    for bit in range(bits):
        reverse |= (inside >> bit & 1) << (bits - 1 - bit)
    return reverse * blocks + block


def add_half(
    builder: ScheduleBuilder,
    placement: NDArray[np.int64],
    shard: NDArray[np.int64],
    op: Op,
    *,
    order: str,
    step: int = 0,
) -> int:
    """Add a reduce-scatter, which leaves each position with the sum of its own shard, or an all-gather.

    Parameters
    ----------
    builder
        Where the rows go.
    placement
        Rank at each position.
    shard
        Chunk that each position owns.
    op
        ``REDUCE`` for the reduce-scatter, ``COPY`` for the all-gather, which is the same rounds backwards.
    order
        ``nearest``: halving from distance 1 up, then circulant; ``farthest``: the other way round. It is the
        order of the reduce-scatter, so that an all-gather by ``farthest`` starts with the nearest partner.
    step
        First step.

    Returns
    -------
    int
        The step after the last.
    """
    check_rows(builder.algorithm, len(placement) * (len(placement) - 1))
    rounds = range(count_rounds(len(placement)))
    for number in rounds if op == Op.REDUCE else reversed(rounds):
        to, owners = _round(len(placement), order, number)
        src, dst = (placement, placement[to]) if op == Op.REDUCE else (placement[to], placement)
        # In the builder's canonical order, which spares it a sort of millions of rows.
        rows = np.argsort(src)
        chunk = np.sort(shard[owners][rows], axis=1)
        builder.add(step=step, chunk=chunk, src=src[rows, None], dst=dst[rows, None], op=op)
        step += 1
    return step


def add_collective(builder: ScheduleBuilder, placement: NDArray[np.int64], order: str) -> None:
    """Add all of the builder's collective: a reduce-scatter, an all-gather, or one after the other.

    Parameters
    ----------
    builder, placement, order
        As in `add_half`. The chunks of an all-reduce are numbered such that messages are few.
    """
    halves = {"reduce_scatter": (Op.REDUCE,), "all_gather": (Op.COPY,)}.get(builder.collective)
    shard = placement if halves else contiguous_shards(len(placement), order)
    step = 0
    for op in halves or (Op.REDUCE, Op.COPY):
        step = add_half(builder, placement, shard, op, order=order, step=step)


def _factor(positions: int) -> tuple[int, int]:
    """Split ``positions = m * 2^q`` into q and the odd m."""
    bits = (positions & -positions).bit_length() - 1
    return bits, positions >> bits


def _round(positions: int, order: str, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Partner of each position in a round, and the owners of the shards it sends there, a row each."""
    bits, blocks = _factor(positions)
    circulant = (blocks - 1).bit_length()
    if order == "nearest":
        if index < bits:
            return _halve_low(positions, index)
        return _circulate(positions, bits, circulant - 1 - (index - bits), whole=False)
    if index < circulant:
        return _circulate(positions, bits, circulant - 1 - index, whole=True)
    return _halve_high(positions, bits - 1 - (index - circulant))


def _halve_low(positions: int, bit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All lower bits are settled: send what agrees with the partner in them and in this one."""
    here = np.arange(positions)
    to = here ^ (1 << bit)
    stride = 2 << bit
    return to, (to & (stride - 1))[:, None] + np.arange(0, positions, stride)


def _halve_high(positions: int, bit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All higher bits are settled: send what agrees with the partner in them and in this one."""
    here = np.arange(positions)
    to = here ^ (1 << bit)
    return to, (to >> bit << bit)[:, None] + np.arange(1 << bit)


def _circulate(
    positions: int, bits: int, power: int, *, whole: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Send on to the block 2^power further; `whole` blocks, or only the shard at one's own place in each."""
    here = np.arange(positions)
    blocks = positions >> bits
    block, inside = here >> bits, here & ((1 << bits) - 1)
    to = ((block + (1 << power)) % blocks << bits) + inside
    ahead = np.arange(1 << power, min(2 << power, blocks))
    targets = (block[:, None] + ahead) % blocks << bits
    if not whole:
        return to, targets + inside[:, None]
    return to, (targets[:, :, None] + np.arange(1 << bits)).reshape(positions, -1)
