"""Rounds that hand out: binomial trees, and exchanges in which every rank meets every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.schedule import Op

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import ScheduleBuilder


def add_binomial(builder: ScheduleBuilder, order: NDArray[np.int64], *, scatter: bool) -> int:
    """Add a binomial tree from its first rank down, the largest part of the ranks first.

    Parameters
    ----------
    builder
        Where the rows go.
    order
        Rank at each position; the root is first.
    scatter
        Whether each rank gets only the chunks of the ranks below it, chunk r being that of rank r; else
        chunk 0 goes to all.

    Returns
    -------
    int
        The step after the last.
    """
    steps = (len(order) - 1).bit_length()
    for step in range(steps):
        distance = 1 << (steps - 1 - step)
        above = np.arange(0, len(order) - distance, 2 * distance)
        below = above + distance
        if not scatter:
            builder.add(step=step, chunk=0, src=order[above], dst=order[below], op=Op.COPY)
            continue
        for sender, receiver in zip(above.tolist(), below.tolist(), strict=True):
            chunk = order[receiver : receiver + distance]
            builder.add(step=step, chunk=chunk, src=order[sender], dst=order[receiver], op=Op.COPY)
    return steps


def staggered(ranks: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Step, sender and receiver of an exchange in which every rank meets every other, the next one first.

    Examples
    --------
    >>> [column.tolist() for column in staggered(3)]
    [[[0], [1]], [0, 1, 2], [[1, 2, 0], [2, 0, 1]]]
    """
    step = np.arange(ranks - 1)[:, None]
    src = np.arange(ranks)
    return step, src, (src + step + 1) % ranks
