"""Gloo's halving-doubling, with binary blocks where the number of ranks is no power of two.

``gloo::AllreduceHalvingDoubling`` is Gloo's older interface, which Caffe2 used; PyTorch does not call it. For
a power of two it is Rabenseifner's algorithm with the nearest partner first. Otherwise the ranks are divided
into blocks of different powers of two, the largest first. Each block sums by halving on its own; each hands
its sums to the next larger block, and gets the results back from it before it gathers them.

References
----------
.. [1] facebookincubator/gloo cc44198 (May 2025): gloo/allreduce_halving_doubling.h.
.. [2] R. Rabenseifner, J. L. Träff, "More efficient reduction algorithms for non-power-of-two number of
   processors in message-passing parallel systems", EuroPVM/MPI 2004.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from weft.algorithms.common.folded_rounds import core_size
from weft.algorithms.common.halving_rounds import add_half, contiguous_shards
from weft.schedule import Op, ScheduleBuilder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

_NAME = "gloo_halving_doubling"


def all_reduce(topology: Topology) -> Schedule:
    """Sum in each binary block by halving, across the blocks in a chain, and gather by doubling.

    Parameters
    ----------
    topology
        Any cluster. Ranks take part in their order.

    Returns
    -------
    Schedule
        As many chunks as the largest block has ranks.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> all_reduce(load_topology("switch:8"))
    <Schedule gloo_halving_doubling all_reduce on switch:8: 8 chunks, 6 steps, 112 transfers>
    >>> all_reduce(load_topology("switch:7")).steps
    5

    Notes
    -----
    Steps: 2 log2 p for p ranks in the largest block, and at least one more where there are others. A rank of
    the largest block sends 2(p-1)/p of the buffer, and 1/p to the next block; a block of one rank sends a
    whole buffer and receives one.
    """
    builder = ScheduleBuilder(topology, "all_reduce", _NAME, chunks=core_size(topology.ranks))
    blocks = _binary_blocks(topology.ranks)
    for block in blocks:
        _add_halving(builder, block, Op.REDUCE, 0)
    for larger, smaller in pairwise(blocks):
        # The smaller block has its sums, and those of all that are smaller still, after this many steps.
        _add_crossing(builder, smaller, larger, Op.REDUCE, _halvings(smaller))
    step = _halvings(blocks[0])
    for index, block in enumerate(blocks):
        if index + 1 < len(blocks):
            _add_crossing(builder, blocks[index + 1], block, Op.COPY, step + index)
            _add_halving(builder, block, Op.COPY, step + index + 1)
        else:
            _add_halving(builder, block, Op.COPY, step + index)
    return builder.build()


def _binary_blocks(ranks: int) -> list[NDArray[np.int64]]:
    """Ranks in blocks of different powers of two, the largest first."""
    sizes = [1 << bit for bit in reversed(range(ranks.bit_length())) if ranks >> bit & 1]
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)]


def _halvings(block: NDArray[np.int64]) -> int:
    return len(block).bit_length() - 1


def _owned(builder: ScheduleBuilder, block: NDArray[np.int64]) -> NDArray[np.int64]:
    """Chunks that each rank of a block owns after halving, a row each."""
    share = builder.chunks // len(block)
    return contiguous_shards(len(block), "nearest")[:, None] * share + np.arange(share)


def _add_halving(builder: ScheduleBuilder, block: NDArray[np.int64], op: Op, step: int) -> None:
    """Add the reduce-scatter or the all-gather inside a block."""
    shares = _owned(builder, block)
    for column in shares.T:
        add_half(builder, block, column, op, order="nearest", step=step)


def _add_crossing(
    builder: ScheduleBuilder, smaller: NDArray[np.int64], larger: NDArray[np.int64], op: Op, step: int
) -> None:
    """Add sums on their way from a block to the next larger one, or results on their way back."""
    owner = np.empty(builder.chunks, np.int64)
    owner[_owned(builder, smaller)] = smaller[:, None]
    chunk = _owned(builder, larger)
    far, near = owner[chunk], np.broadcast_to(larger[:, None], chunk.shape)
    src, dst = (far, near) if op == Op.REDUCE else (near, far)
    builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op)
