"""How finely to cut messages: the segment sizes worth a try, and the best of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.errors import InputError, LimitError
from weft.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.simulation import SimulationResult

AUTO: Final = "auto"

SEGMENT_SIZES: Final = (4 << 20, 1 << 20, 256 << 10, 64 << 10)
"""Tried in this order, coarse to fine, after no cut at all."""

SEGMENT_BUDGET: Final = 300_000
"""A size that would make more segments than this is not tried: its simulation would cost seconds."""

LEAST_SEGMENT: Final = 4 << 10
"""Smaller segments would gain in the simulation, which charges nothing for a segment, and lose in reality."""


def parse_segment(segment: str | int | None) -> int | str | None:
    """Segment size in bytes, None for whole messages, or ``"auto"``.

    Examples
    --------
    >>> parse_segment("auto"), parse_segment("none"), parse_segment("1MiB")
    ('auto', None, 1048576)
    """
    if segment is None or segment == "none":
        return None
    if segment == AUTO:
        return AUTO
    size_bytes = units.parse_size(segment)
    if not size_bytes:
        msg = f"segment {segment!r}: must be at least one byte, 'none' or 'auto'"
        raise InputError(msg)
    return size_bytes


def segment_candidates(schedule: Schedule, size_bytes: int) -> list[int | None]:
    """Segment sizes that cut something, and not into too many pieces; None, no cut, comes first."""
    too_fine = _too_fine(schedule, size_bytes)
    return [None, *(size for size in _cutting_sizes(schedule, size_bytes) if size not in too_fine)]


def _cutting_sizes(schedule: Schedule, size_bytes: int) -> list[int]:
    largest = int(_message_bytes(schedule, size_bytes).max(initial=0))
    return [size for size in SEGMENT_SIZES if size < largest]


def _too_fine(schedule: Schedule, size_bytes: int) -> list[int]:
    """Sizes that cut something, but into too many pieces."""
    messages = _message_bytes(schedule, size_bytes)
    sizes = _cutting_sizes(schedule, size_bytes)
    return [size for size in sizes if _count_segments(messages, size) > SEGMENT_BUDGET]


def count_segments(schedule: Schedule, size_bytes: int, segment_bytes: int | None) -> NDArray[np.int64]:
    """At least how many segments each message is cut into."""
    messages = _message_bytes(schedule, size_bytes)
    if segment_bytes is None:
        return (messages > 0).astype(np.int64)
    segments: NDArray[np.int64] = -(-messages // segment_bytes)
    return segments


def _message_bytes(schedule: Schedule, size_bytes: int) -> NDArray[np.int64]:
    if not schedule.transfers:
        return np.zeros(0, np.int64)
    rows = schedule.chunk_bytes(size_bytes)[schedule.chunk]
    messages: NDArray[np.int64] = np.add.reduceat(rows, schedule.message_starts)
    return messages


def _count_segments(messages: NDArray[np.int64], segment_bytes: int) -> int:
    """Least number of segments that messages of these sizes are cut into."""
    return int((-(-messages // segment_bytes)).sum())


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


@dataclass(frozen=True, slots=True)
class SegmentSearch:
    """The fastest run, and what it took to find it.

    Parameters
    ----------
    result
        The run.
    first_seconds
        Wall-clock seconds of the first run, the coarsest.
    untried
        Segment sizes that were left out although they might have been faster.
    """

    result: SimulationResult
    first_seconds: float
    untried: tuple[int, ...] = ()


def simulate_best(
    schedule: Schedule,
    size_bytes: int,
    *,
    segment: int | str | None = AUTO,
    sharing: str = "queue",
    order: str = "priority",
    execution: str = "dependency",
) -> SimulationResult:
    """Simulate with each segment size worth a try and return the fastest run; see `search_segments`."""
    return search_segments(
        schedule, size_bytes, segment=segment, sharing=sharing, order=order, execution=execution
    ).result


def search_segments(
    schedule: Schedule,
    size_bytes: int,
    *,
    segment: int | str | None = AUTO,
    sharing: str = "queue",
    order: str = "priority",
    execution: str = "dependency",
    good_enough_s: float = 0.0,
    time_left: Callable[[], float] = lambda: math.inf,
    max_work: float | None = None,
) -> SegmentSearch:
    """Simulate with each segment size worth a try and find the fastest run.

    Parameters
    ----------
    schedule, size_bytes
        What to run.
    segment
        As `parse_segment` takes it.
    sharing, order, execution
        As in `weft.simulate`.
    good_enough_s
        A run this short ends the search.
    time_left
        Wall-clock seconds that are left for it; the first size is tried even if there are none.
    max_work
        Operations that each run may take, as in `weft.simulate`; None for any number.

    Raises
    ------
    LimitError
        If the first run would take more; sizes after it that would are left out.
    """
    cut = parse_segment(segment)
    if isinstance(cut, int):
        # The engine would find out too, after it filled the memory.
        count = _count_segments(_message_bytes(schedule, size_bytes), cut)
        limits.check(f"segments of {units.format_size(cut)}", count, limits.MAX_SEGMENTS)
    tries = [cut] if not isinstance(cut, str) else segment_candidates(schedule, size_bytes)
    best: SimulationResult | None = None
    took = first = 0.0
    while tries:
        # The next size is a quarter of the last, and may take four times as long.
        if best is not None and time_left() < 4 * took:
            break
        began = time.monotonic()
        try:
            result = simulate(
                schedule,
                size_bytes,
                segment_bytes=tries[0],
                sharing=sharing,
                order=order,
                execution=execution,
                max_work=max_work,
            )
        except LimitError:
            if best is None:
                raise
            break
        del tries[0]
        took = time.monotonic() - began
        first = first or took
        if best is None or result.time_ps < best.time_ps:
            best = result
        if best.seconds <= good_enough_s:
            return SegmentSearch(best, first)
    assert best is not None, "there is always one size to try"
    late = [size for size in tries if size is not None]
    untried = (*late, *_too_fine(schedule, size_bytes)) if isinstance(cut, str) else ()
    return SegmentSearch(best, first, untried)
