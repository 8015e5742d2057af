"""Drawings of one chunk's way."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from support.golden import check_golden
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce

from weft.errors import ScheduleError
from weft.export import to_dot
from weft.schedule import Schedule
from weft.topology import load_topology


@pytest.mark.parametrize(
    ("name", "schedule", "chunk"),
    [
        ("ring_all_reduce_chunk_1.dot", ring_all_reduce(load_topology("ring:4")), 1),
        ("relay_all_to_all_chunk_2.dot", relayed_all_to_all(), 2),
    ],
)
def test_the_drawing_is_the_golden_one(name: str, schedule: Schedule, chunk: int) -> None:
    check_golden(name, to_dot(schedule, chunk) + "\n")


@given(all_gathers())
def test_every_transfer_of_the_chunk_is_an_edge(schedule: Schedule) -> None:
    for chunk in range(schedule.chunks):
        edges = re.findall(r'"(\d+)" -> "(\d+)"', to_dot(schedule, chunk))
        mine = schedule.chunk == chunk
        expected = zip(schedule.src[mine].tolist(), schedule.dst[mine].tolist(), strict=True)
        assert [(int(a), int(b)) for a, b in edges] == list(expected)


def test_names_cannot_break_out_of_their_quotes() -> None:
    schedule = Schedule(**columns(algorithm='a"]; evil [label="\\'))
    named = replace(schedule, topology=replace(schedule.topology, name='x\n"\\"'))
    first, label, *_ = to_dot(named).splitlines()
    assert first == r'digraph "a\"]; evil [label=\"\\" {'
    assert label == r'  label="broadcast by a\"]; evil [label=\"\\ on x\\n\"\\\", chunk 0"'


@pytest.mark.parametrize("chunk", [-1, 4])
def test_a_chunk_that_is_not_there_is_refused(chunk: int) -> None:
    with pytest.raises(ScheduleError, match=rf"there is no chunk {chunk}, the schedule has 0\.\.3"):
        to_dot(ring_all_reduce(load_topology("ring:4")), chunk)
