"""Into what segments messages are cut: the sizes worth a try, and how many segments each of them makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import units
from weft.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.schedule import Schedule

AUTO: Final = "auto"

SEGMENT_SIZES: Final = (4 << 20, 1 << 20, 256 << 10, 64 << 10)
"""Tried in this order, coarse to fine, after no cut at all."""

SEGMENT_BUDGET: Final = 300_000
"""A size that would make more segments than this is not tried: its simulation would cost seconds."""


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
        raise InputError(f"segment {segment!r}: must be at least one byte, 'none' or 'auto'")
    return size_bytes


def segment_candidates(schedule: Schedule, size_bytes: int) -> tuple[list[int | None], list[int]]:
    """Segment sizes worth a try, None (no cut) first, and those that would make too many segments.

    Sizes that cut no message at all are in neither list.
    """
    messages = _message_bytes(schedule, size_bytes)
    cutting = [size for size in SEGMENT_SIZES if size < messages.max(initial=0)]
    too_fine = [size for size in cutting if (-(-messages // size)).sum() > SEGMENT_BUDGET]
    return [None, *(size for size in cutting if size not in too_fine)], too_fine


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
