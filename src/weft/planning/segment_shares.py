"""Segments of a plan: shares of the buffer, which stay right as messages grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule

LEAST_SEGMENT: Final = 4 << 10
"""Smaller segments would gain in the simulation, which charges nothing for a segment, and lose in reality."""

SEGMENT_TOLERANCE: Final = 1.01
"""Of cuts that take at most this factor longer than the fastest one, the coarsest is taken: each segment
costs time in ranks that the simulation does not count, which soon outweighs a percent that it promises."""


def message_shares(schedule: Schedule) -> NDArray[np.float64]:
    """Share of the buffer that each message carries, whatever its size in bytes."""
    if not schedule.transfers:
        return np.zeros(0)
    rows = schedule.weights[schedule.chunk] / schedule.denominator
    shares: NDArray[np.float64] = np.add.reduceat(rows, schedule.message_starts)
    return shares


def segments_of(shares: NDArray[np.float64], cuts: float) -> int:
    """How many segments messages of these shares make when the longest is cut into `cuts`.

    Examples
    --------
    >>> segments_of(np.array([0.5, 0.25, 0.25]), 4)
    8
    """
    longest = float(shares.max(initial=0.0))
    return int(np.ceil(shares / longest * cuts - 1e-9).sum()) if longest else len(shares)


def segment_share(longest: float, cuts: float) -> float | None:
    """Share of the buffer in a segment so that the longest message has `cuts` of them; None if it is not cut.

    A 64th is added, so that messages that differ by a rounded byte are cut alike.
    """
    return None if cuts == 1 else min(longest * 65 / (64 * cuts), 1.0)


def segment_size(share: float | None, size_bytes: int) -> int | None:
    """Bytes of a segment that is a share of the buffer; None for whole messages.

    Examples
    --------
    >>> segment_size(segment_share(0.25, 4), 1 << 20), segment_size(segment_share(0.25, 1), 1 << 20)
    (66561, None)
    """
    return None if share is None else int(share * size_bytes) + 1
