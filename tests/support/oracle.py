"""The meaning of a schedule, executed literally on tiny inputs: slow, short, and obviously right.

The value a place (rank, slot, chunk) holds is the exact multiset of ranks whose contributions were summed
into it, so that no wrong sum can look right by chance. A place that nothing was written to is absent, which
is poison: what copies poison is poison, and what adds to or from poison is poison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from weft.schedule import Op, Schedule

EVERY = -1


class Place(NamedTuple):
    rank: int
    slot: int
    chunk: int


Value = Counter[int]
"""How often each rank's contribution is in the sum."""

Values = dict[Place, Value]


class Hazard(Exception):
    """Two writes of one step meet in one place, and not all of them are reduces."""


class Transfer(NamedTuple):
    row: int
    step: int
    op: Op
    read: Place
    write: Place


def transfers_of(schedule: Schedule) -> Iterator[Transfer]:
    for row in range(schedule.transfers):
        chunk = int(schedule.chunk[row])
        src_slot = 0 if schedule.src_slot is None else int(schedule.src_slot[row])
        dst_slot = 0 if schedule.dst_slot is None else int(schedule.dst_slot[row])
        read = Place(int(schedule.src[row]), src_slot, chunk)
        write = Place(int(schedule.dst[row]), dst_slot, chunk)
        yield Transfer(row, int(schedule.step[row]), Op(int(schedule.op[row])), read, write)


def members(end: int, ranks: int) -> range:
    """Ranks that an entry of `source` or `target` stands for."""
    return range(ranks) if end == EVERY else range(end, end + 1)


def initial(schedule: Schedule) -> Values:
    return {
        Place(rank, 0, chunk): Counter({rank: 1})
        for chunk, source in enumerate(schedule.source.tolist())
        for rank in members(source, schedule.ranks)
    }


def expected(schedule: Schedule) -> Values:
    """What the collective promises at the end."""
    ends = enumerate(zip(schedule.source.tolist(), schedule.target.tolist(), strict=True))
    return {
        Place(rank, 0, chunk): Counter(members(source, schedule.ranks))
        for chunk, (source, target) in ends
        for rank in members(target, schedule.ranks)
    }


def run(schedule: Schedule) -> Values:
    """Execute a schedule and return every place that holds a value at the end.

    Raises
    ------
    Hazard
        If one step writes a place twice, other than by several reduces.
    """
    values = initial(schedule)
    for _, group in groupby(transfers_of(schedule), key=lambda transfer: transfer.step):
        rows = list(group)
        sent = [values.get(transfer.read) for transfer in rows]  # all reads of a step precede its writes
        writers: dict[Place, list[Op]] = {}
        for transfer in rows:
            writers.setdefault(transfer.write, []).append(transfer.op)
        for place, ops in writers.items():
            if len(ops) > 1 and Op.COPY in ops:
                raise Hazard(f"step {rows[0].step}: {place} is written {len(ops)} times")
        for transfer, value in zip(rows, sent, strict=True):
            held = values.pop(transfer.write, None)
            if transfer.op == Op.REDUCE:
                value = held + value if held is not None and value is not None else None
            if value is not None:
                values[transfer.write] = value
    return values


def accepts(schedule: Schedule) -> bool:
    """Whether the schedule has no hazard and keeps its collective's promise."""
    try:
        values = run(schedule)
    except Hazard:
        return False
    return all(values.get(place) == value for place, value in expected(schedule).items())
