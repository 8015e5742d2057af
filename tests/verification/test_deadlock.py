"""Finite receive buffers: the analysis against an executor that simply tries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.handmade import (
    HANDMADE,
    chain_broadcast,
    direct_all_gather,
    direct_reduce_scatter,
    ring_all_reduce,
)

import weft
from weft.errors import InputError, VerificationError
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.ir import TRANSFER_COLUMNS
from weft.schedule.passes import compose
from weft.topology import load_topology
from weft.verification import find_deadlock, inspect, minimum_slots


class Executor:
    """Sends and consumes whatever it may until nothing moves; every rule is read off the rows directly."""

    def __init__(self, schedule: Schedule, slots: int, *, fused: bool) -> None:
        self.schedule, self.slots = schedule, slots
        starts = [*schedule.message_starts.tolist(), schedule.transfers]
        self.rows = [range(a, b) for a, b in pairwise(starts)]
        self.sent: set[int] = set()
        self.consumed: set[int] = set()
        self.queues: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for message, rows in enumerate(self.rows):
            if schedule.src[rows[0]] != schedule.dst[rows[0]]:
                self.queues[self.connection(message)].append(message)
        self.reads, self.writes = self.rows_by_place("src"), self.rows_by_place("dst")
        self.message_of = {row: message for message, rows in enumerate(self.rows) for row in rows}
        self.onward = {m: self.forwarded(m) if fused else None for m in range(len(self.rows))}

    def connection(self, message: int) -> tuple[int, int, int]:
        row = self.rows[message][0]
        return int(self.schedule.src[row]), int(self.schedule.dst[row]), int(self.schedule.route[row])

    def place(self, row: int, end: str) -> tuple[int, int, int]:
        slots = getattr(self.schedule, f"{end}_slot")
        rank = int(getattr(self.schedule, end)[row])
        return rank, 0 if slots is None else int(slots[row]), int(self.schedule.chunk[row])

    def rows_by_place(self, end: str) -> dict[tuple[int, int, int], list[int]]:
        found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for row in range(self.schedule.transfers):
            found[self.place(row, end)].append(row)
        return found

    def forwarded(self, message: int) -> int | None:
        """The first message that sends on what this one brought, if it sends exactly that."""
        rows, step = self.rows[message], self.schedule.step
        if self.connection(message)[0] == self.connection(message)[1]:
            return None
        readers = []
        for row in rows:
            place = self.place(row, "dst")
            later_writes = [w for w in self.writes[place] if w > row]
            end = min((int(step[w]) for w in later_writes), default=int(step[-1]))
            readers.append(next((r for r in self.reads[place] if step[row] < step[r] <= end), None))
        onward = None if readers[0] is None else self.message_of[readers[0]]
        if onward is None or readers != list(self.rows[onward]):
            return None
        return None if self.connection(onward)[0] == self.connection(onward)[1] else onward

    def has_slot(self, message: int) -> bool:
        queue = self.queues.get(self.connection(message), [])
        if message not in queue:
            return True
        at = queue.index(message)
        return at < self.slots or queue[at - self.slots] in self.consumed

    def is_next(self, message: int, done: set[int]) -> bool:
        queue = self.queues.get(self.connection(message), [])
        return message not in queue or all(m in done for m in queue[: queue.index(message)])

    def may_send(self, message: int) -> bool:
        step = self.schedule.step
        held = all(
            self.message_of[w] in self.consumed
            for row in self.rows[message]
            for w in self.writes[self.place(row, "src")]
            if step[w] < step[row]
        )
        return held and self.is_next(message, self.sent) and self.has_slot(message)

    def may_consume(self, message: int) -> bool:
        step = self.schedule.step
        if message not in self.sent or not self.is_next(message, self.consumed):
            return False
        for row in self.rows[message]:
            place = self.place(row, "dst")
            if any(self.message_of[r] not in self.sent for r in self.reads[place] if step[r] <= step[row]):
                return False
            if any(self.message_of[w] not in self.consumed for w in self.writes[place] if w < row):
                return False
        onward = self.onward[message]
        return onward is None or self.has_slot(onward)

    def finishes(self) -> bool:
        moved = True
        while moved:
            moved = False
            for message in range(len(self.rows)):
                if message not in self.sent and self.may_send(message):
                    self.sent.add(message)
                    moved = True
                if message not in self.consumed and self.may_consume(message):
                    self.consumed.add(message)
                    moved = True
        return len(self.consumed) == len(self.rows)


def assert_agrees(schedule: Schedule, slots: int, *, fused: bool) -> None:
    deadlock = find_deadlock(schedule, slots, fused=fused)
    assert (deadlock is None) == Executor(schedule, slots, fused=fused).finishes()
    if deadlock is not None:
        assert len({(wait.transfer, wait.event) for wait in deadlock.circle}) == len(deadlock.circle) >= 2
        assert deadlock.to_error(schedule).check == "deadlock"


@st.composite
def crowded(draw: st.DrawFn) -> Schedule:
    """Much traffic between few ranks: in each step most places are written, by any rank and in any order."""
    ranks, chunks = draw(st.integers(2, 4)), draw(st.integers(2, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    builder = ScheduleBuilder(load_topology(f"fullmesh:{ranks}"), "all_reduce", "crowd", chunks=chunks)
    for step in range(draw(st.integers(1, 3))):
        chunk, dst = np.nonzero(generator.random((chunks, ranks)) < 0.8)
        src = generator.integers(ranks, size=len(dst))
        op = generator.integers(2, size=len(dst))
        builder.add(step=step, chunk=chunk, src=src, dst=dst, op=op, dst_slot=src == dst)
    schedule = builder.build()
    # Canonical order hides the deadlocks that another order of messages within a step has.
    order = np.lexsort([generator.permutation(schedule.transfers), schedule.step])
    columns = {name: getattr(schedule, name) for name in TRANSFER_COLUMNS}
    return replace(schedule, **{name: c[order] for name, c in columns.items() if c is not None})


@given(crowded(), st.integers(1, 3), st.booleans())
@examples(600)
def test_verdicts_equal_those_of_an_executor_that_tries(schedule: Schedule, slots: int, fused: bool) -> None:
    assert_agrees(schedule, slots, fused=fused)


@given(crowded(), st.booleans())
@examples(100)
def test_the_minimum_works_and_one_less_does_not(schedule: Schedule, fused: bool) -> None:
    least = minimum_slots(schedule, fused=fused)
    assert find_deadlock(schedule, least, fused=fused) is None
    assert least == 1 or find_deadlock(schedule, least - 1, fused=fused) is not None
    assert find_deadlock(schedule, 10**12, fused=fused) is None


@pytest.mark.parametrize("make", HANDMADE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("slots", [1, 2])
def test_verdicts_on_right_schedules_equal_those_of_an_executor(make, fused: bool, slots: int) -> None:
    assert_agrees(make(load_topology("ring:5")), slots, fused=fused)


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_fused_ring_needs_two_slots_and_a_plain_one_needs_one(ranks: int) -> None:
    schedule = ring_all_reduce(load_topology(f"ring:{ranks}"))
    assert (minimum_slots(schedule), minimum_slots(schedule, fused=True)) == (1, 2)
    with pytest.raises(
        VerificationError, match=r"deadlock: transfer 0, rank 1, chunk 0: with 1 receive slot"
    ):
        weft.verify(schedule, slots=1, fused=True)
    assert weft.verify(schedule, slots=2, fused=True).slots == 2
    assert weft.verify(schedule, slots=1).slots == 1


def test_the_circle_of_a_fused_ring_goes_once_round() -> None:
    schedule = ring_all_reduce(load_topology("ring:6"))
    deadlock = find_deadlock(schedule, 1, fused=True)
    assert deadlock is not None
    assert sorted(int(schedule.src[wait.transfer]) for wait in deadlock.circle) == list(range(6))
    assert {wait.event for wait in deadlock.circle} == {"consumed"}


def test_all_pairs_and_trees_need_one_slot_even_when_fused() -> None:
    topology = load_topology("fullmesh:6")
    pairs = direct_reduce_scatter(topology)
    gather = direct_all_gather(topology)
    both = compose(halved(pairs), gather, "all_reduce")
    weft.verify(both)
    for schedule in (both, pairs, gather, chain_broadcast(topology)):
        assert minimum_slots(schedule, fused=True) == 1


def halved(schedule: Schedule) -> Schedule:
    """The even chunks of `direct_reduce_scatter`, as a schedule with one chunk per rank."""
    keep = schedule.chunk % 2 == 0
    names = ("step", "chunk", "src", "dst", "op", "route")
    columns = {name: getattr(schedule, name)[keep] for name in names}
    columns["chunk"] = columns["chunk"] // 2
    chunks = {name: getattr(schedule, name)[::2] for name in ("weights", "source", "target")}
    return replace(schedule, denominator=schedule.denominator // 2, **chunks, **columns)


def test_two_messages_each_way_in_one_step_need_two_slots() -> None:
    """Each rank overwrites with its first message what the other still has to send as its second."""
    builder = ScheduleBuilder(load_topology("fullmesh:2"), "all_reduce", "swap", chunks=4)
    builder.add(step=0, chunk=[0, 3], src=0, dst=1, op=Op.COPY)
    builder.add(step=0, chunk=[0, 3], src=1, dst=0, op=Op.COPY)
    schedule = builder.build()
    order = [0, 1, 3, 2]
    crossed = replace(schedule, **{name: getattr(schedule, name)[order] for name in ("chunk", "src", "dst")})
    assert minimum_slots(crossed) == 2
    deadlock = find_deadlock(crossed, 1)
    assert deadlock is not None
    assert str(deadlock.to_error(crossed)) == (
        "deadlock: transfer 0, rank 1, chunk 0: with 1 receive slot per connection, 4 events wait for each "
        "other: transfer 0 (rank 0 to 1, chunk 0) cannot be consumed until transfer 3 is sent, which still "
        "reads the place; transfer 3 (rank 1 to 0, chunk 0) cannot be sent until transfer 2 is consumed, "
        "which takes its receive slot; transfer 2 (rank 1 to 0, chunk 3) cannot be consumed until transfer 1 "
        "is sent, which still reads the place; and 1 more like it, back to the first"
    )


def test_a_message_behind_one_that_cannot_be_sent_counts_as_stuck() -> None:
    """Rank 0 must send its chunk 2 before its chunk 1, and chunk 2 has not come yet."""
    a, b, c, d = range(4)
    rows = [
        (0, 2, c, a),  # brings what the next three lines' last one forwards first: it needs their third slot
        (1, 5, a, d),
        (1, 8, a, d),
        (1, 2, a, d),
        (1, 2, a, b),
        (1, 1, a, b),
        (1, 1, d, a),  # overwrites what the line above reads
        (1, 9, d, a),
        (1, 5, d, a),  # needs the slot of two lines above, and reads what rank 0's chunk 5 overwrites
    ]
    step, chunk, src, dst = np.array(rows).T
    empty = ScheduleBuilder(load_topology("fullmesh:4"), "all_reduce", "behind", chunks=10).build()
    zero = np.zeros(len(rows), np.uint8)
    schedule = replace(empty, step=step, chunk=chunk, src=src, dst=dst, op=zero, route=zero.astype(int) - 1)
    assert_agrees(schedule, 2, fused=True)
    deadlock = find_deadlock(schedule, 2, fused=True)
    assert deadlock is not None
    assert ("sent", "which comes before it on the connection") in {
        (w.event, w.reason) for w in deadlock.circle
    }
    assert minimum_slots(schedule, fused=True) == 3


def test_without_a_demand_the_report_says_how_many_slots_are_enough() -> None:
    builder = ScheduleBuilder(load_topology("fullmesh:2"), "all_reduce", "crossed", chunks=7)
    builder.add(step=0, chunk=[0, 2, 4, 6], src=[[0], [1]], dst=[[1], [0]], op=Op.REDUCE)
    builder.add(step=1, chunk=[1, 3, 5], src=[[0], [1]], dst=[[1], [0]], op=Op.REDUCE)
    schedule = builder.build()
    order = [*range(4), *reversed(range(4, 8)), *range(8, 14)]
    crossed = replace(schedule, **{name: getattr(schedule, name)[order] for name in ("chunk", "src", "dst")})
    report = inspect(crossed)
    assert report.ok
    assert report.slots == minimum_slots(crossed) > 2
    assert not inspect(crossed, slots=2).ok


@pytest.mark.parametrize("slots", [0, -1])
def test_less_than_one_slot_is_refused(slots: int) -> None:
    schedule = ring_all_reduce(load_topology("ring:3"))
    for call in (find_deadlock, lambda s, n: weft.verify(s, slots=n)):
        with pytest.raises(InputError, match="at least 1"):
            call(schedule, slots)


def test_a_schedule_without_transfers_cannot_get_stuck() -> None:
    empty = ScheduleBuilder(load_topology("ring:3"), "broadcast", "none", chunks=1).build()
    assert find_deadlock(empty, 1, fused=True) is None
    assert minimum_slots(empty) == 1
