"""The elements of an array that a schedule's chunks and shares have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule


def cut_into_chunks(schedule: Schedule, elements: int) -> NDArray[np.int64]:
    """Return the first element of each chunk, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(schedule.chunk_bytes(elements))])


def share_of(schedule: Schedule, start: NDArray[np.int64], rank: int) -> tuple[int, int]:
    """Return the range that a rank has after a reduce-scatter; `start` is of `cut_into_chunks`."""
    owned = np.flatnonzero(schedule.target == rank)
    return (int(start[owned[0]]), int(start[owned[-1] + 1])) if len(owned) else (0, 0)
