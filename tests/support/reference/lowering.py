"""From a schedule to segments and what each of them waits for.

This is everything the reference engine knows about schedules; its event loop
(`support.reference.schedule_engine`) sees only the result. A chunk is cut into *pieces*, the same at every
rank. A message carries pieces, grouped into *segments* that travel as one. A segment passes milestones that
others may wait for: it has *left* its source, *arrived* at its destination, and is *applied* there.

Why a segment waits
-------------------
- It reads its source: what was written there before must be applied.
- It writes its destination: what was read there before must have left, what was written must be applied.

A start waits for earlier steps only, an apply at most for departures and earlier applies of its own step: no
schedule can deadlock here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from weft import limits
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.schedule import Schedule


class Piece(NamedTuple):
    """One of the equal parts of a chunk."""

    chunk: int
    part: int


class Place(NamedTuple):
    """Where a piece is kept."""

    rank: int
    slot: int
    piece: Piece


class Milestone(Enum):
    """What can be waited for a segment to have done."""

    LEFT = "left"
    ARRIVED = "arrived"
    APPLIED = "been applied"


class Passed(NamedTuple):
    """That a segment has reached a milestone."""

    segment: int
    milestone: Milestone


@dataclass(frozen=True, slots=True)
class Segment:
    """What travels as one.

    Parameters
    ----------
    number
        Its place in the order of (message, index).
    message, index
        The message it is cut from, and which cut, from 0. Messages without bytes keep their number.
    row
        First transfer it carries a piece of.
    step, src, dst, src_slot, dst_slot
        As in the schedule.
    pieces, size_bytes
        What it carries.
    route
        Links it crosses; empty for a move between two slots of one rank.
    """

    number: int
    message: int
    index: int
    row: int
    step: int
    src: int
    dst: int
    src_slot: int
    dst_slot: int
    pieces: tuple[Piece, ...]
    size_bytes: int
    route: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int, int]:
        """Its rank among those that wait for the same link: the smallest goes first."""
        return self.index, self.step, self.message

    @property
    def reads(self) -> Iterator[Place]:
        """Places it takes its pieces from."""
        return (Place(self.src, self.src_slot, piece) for piece in self.pieces)

    @property
    def writes(self) -> Iterator[Place]:
        """Places it puts its pieces into."""
        return (Place(self.dst, self.dst_slot, piece) for piece in self.pieces)

    @property
    def left(self) -> Passed:
        """That it has left its source."""
        return Passed(self.number, Milestone.LEFT)

    @property
    def arrived(self) -> Passed:
        """That it has arrived at its destination."""
        return Passed(self.number, Milestone.ARRIVED)

    @property
    def applied(self) -> Passed:
        """That it is applied at its destination."""
        return Passed(self.number, Milestone.APPLIED)


@dataclass(slots=True)
class Waits:
    """What must have passed before a segment may start, and before it may be applied."""

    apply: set[Passed]
    start: set[Passed] = field(default_factory=set)


def cut_segments(
    schedule: Schedule, size_bytes: int, segment_bytes: int | None = None, element_bytes: int = 1
) -> list[Segment]:
    """All segments of a schedule, in the order of (message, index).

    Examples
    --------
    >>> from weft.schedule import Op, ScheduleBuilder
    >>> from weft.topology import load_topology
    >>> builder = ScheduleBuilder(load_topology("ring:2"), "all_reduce", "half", chunks=2)
    >>> builder.add(step=0, chunk=[0, 1], src=0, dst=1, op=Op.REDUCE)
    >>> [(s.message, s.index, s.size_bytes) for s in cut_segments(builder.build(), 11, segment_bytes=4)]
    [(0, 0, 3), (0, 1, 3), (0, 2, 3), (0, 3, 2)]
    """
    if segment_bytes is not None and segment_bytes < 1:
        msg = f"segment_bytes {segment_bytes}: must be at least 1, or None to send each message whole"
        raise InputError(msg)
    chunk_bytes: list[int] = schedule.chunk_bytes(size_bytes, element_bytes).tolist()
    counts = [_count_pieces(size, segment_bytes) for size in chunk_bytes]
    limits.check("segments", sum(counts[chunk] for chunk in schedule.chunk.tolist()), limits.MAX_SEGMENTS)
    bounds = pairwise([*schedule.message_starts.tolist(), schedule.transfers])
    segments: list[Segment] = []
    for message, (first, end) in enumerate(bounds):
        src, dst = int(schedule.src[first]), int(schedule.dst[first])
        route = schedule.route_of(first) if src != dst else ()
        cargo = (
            (row, *piece)
            for row, chunk in enumerate(schedule.chunk[first:end].tolist(), first)
            for piece in _cut_chunk(chunk, chunk_bytes[chunk], counts[chunk])
        )
        for index, group in enumerate(_group(cargo, segment_bytes)):
            segment = Segment(
                number=len(segments),
                message=message,
                index=index,
                row=group[0][0],
                step=int(schedule.step[first]),
                src=src,
                dst=dst,
                src_slot=0 if schedule.src_slot is None else int(schedule.src_slot[first]),
                dst_slot=0 if schedule.dst_slot is None else int(schedule.dst_slot[first]),
                pieces=tuple(piece for _, piece, _ in group),
                size_bytes=sum(piece_bytes for _, _, piece_bytes in group),
                route=route,
            )
            segments.append(segment)
    return segments


def derive_waits(segments: Sequence[Segment]) -> list[Waits]:
    """Find what each segment waits for."""
    waits = [Waits(apply={segment.arrived}) for segment in segments]
    _wait_for_data(segments, waits)
    return waits


def _count_pieces(chunk_bytes: int, segment_bytes: int | None) -> int:
    if segment_bytes is None:
        return 1 if chunk_bytes else 0
    return -(-chunk_bytes // segment_bytes)


def _cut_chunk(chunk: int, chunk_bytes: int, count: int) -> Iterator[tuple[Piece, int]]:
    """Cut into pieces as equal as can be, the larger first."""
    for part in range(count):
        yield Piece(chunk, part), chunk_bytes // count + (part < chunk_bytes % count)


def _group(
    cargo: Iterable[tuple[int, Piece, int]], segment_bytes: int | None
) -> Iterator[list[tuple[int, Piece, int]]]:
    """Fill segments greedily; a piece is never larger than one."""
    group: list[tuple[int, Piece, int]] = []
    total = 0
    for row, piece, piece_bytes in cargo:
        if group and segment_bytes is not None and total + piece_bytes > segment_bytes:
            yield group
            group, total = [], 0
        group.append((row, piece, piece_bytes))
        total += piece_bytes
    if group:
        yield group


def _steps(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    return (list(step) for _, step in groupby(segments, key=lambda segment: segment.step))


def _wait_for_data(segments: Sequence[Segment], waits: list[Waits]) -> None:
    """Add the waits of data. Within a step all reads come first, then all writes in row order."""
    writer: dict[Place, Segment] = {}
    readers: dict[Place, list[Segment]] = defaultdict(list)
    for step in _steps(segments):
        for segment in step:
            for place in segment.reads:
                readers[place].append(segment)
                if place in writer:
                    waits[segment.number].start.add(writer[place].applied)
        for segment in step:
            for place in segment.writes:
                waits[segment.number].apply.update(reader.left for reader in readers.pop(place, ()))
                if place in writer:
                    waits[segment.number].apply.add(writer[place].applied)
                writer[place] = segment
