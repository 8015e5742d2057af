"""The printed form: golden files, and what must hold for any schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from support.golden import check_golden
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft.errors import printable
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.schedule.passes import halves
from weft.schedule.text import format_schedule, format_weights
from weft.topology import load_topology

RING = ring_all_reduce(load_topology("ring:4"))


def detour() -> Schedule:
    """Long routes over switches, two-digit ranks, and many uneven chunks."""
    topology = load_topology("fattree:3,2,4")
    builder = ScheduleBuilder(topology, "reduce", "detour", weights=[2 * c for c in range(1, 21)], root=11)
    for src in (0, 4, 10):
        builder.add(
            step=src,
            chunk=range(20),
            src=src,
            dst=11,
            op=Op.REDUCE,
            route=builder.route(topology.route(src, 11)),
        )
    builder.note("only some ranks take part")
    return builder.build()


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("ring_all_reduce.txt", RING),
        ("ring_reduce_scatter.txt", halves(RING)[0]),
        ("two_cables.txt", routed_all_reduce()),
        ("relay_all_to_all.txt", relayed_all_to_all()),
        ("detour_reduce.txt", detour()),
        ("all_gather_of_nothing.txt", ScheduleBuilder(load_topology("ring:4"), "all_gather", "idle").build()),
    ],
)
def test_the_printed_form_is_the_golden_one(name: str, schedule: Schedule) -> None:
    check_golden(name, format_schedule(schedule) + "\n")


def test_str_is_the_printed_form() -> None:
    assert str(RING) == format_schedule(RING)


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        (0, "... 24 more messages"),
        (23, "... 1 more message"),
        (24, "step 5   3 -> 0   copy    chunk 2"),
        (-5, "... 24 more messages"),
    ],
)
def test_long_schedules_are_cut_short_and_say_so(rows: int, last: str) -> None:
    lines = format_schedule(RING, max_rows=rows).splitlines()
    assert lines[-1] == last
    assert sum(line.startswith("step ") for line in lines) == max(0, min(rows, 24))


@given(all_gathers())
def test_there_is_a_line_for_every_message(schedule: Schedule) -> None:
    text = format_schedule(schedule, max_rows=10**9)
    assert sum(line.startswith("step ") for line in text.splitlines()) == schedule.messages
    assert schedule.digest in text
    assert text.count(" via ") == sum(int(schedule.route[row]) >= 0 for row in schedule.message_starts)


def test_what_a_terminal_would_obey_is_shown_not_sent() -> None:
    schedule = Schedule(**columns(algorithm="a\x1b[2Jb", notes=("one\ntwo", "\u202eolleh")))
    named = replace(schedule, topology=replace(schedule.topology, name="x\ry"))
    text = format_schedule(named)
    assert r"by a\x1b[2Jb on x\ry" in text
    assert r"note       one\ntwo" in text
    assert r"\u202eolleh" in text
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_printable_text_is_left_alone() -> None:
    assert printable('Grün, "naïve" → 漢字') == 'Grün, "naïve" → 漢字'


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([7], "1"),
        ([3, 3], "2, equal"),
        ([1, 2], "2, weights 1 2 of 3"),
        ([6, 0, 3], "3, weights 2 0 1 of 3"),
        ([1] * 16 + [2], "17, weights " + "1 " * 16 + "... of 18"),
    ],
)
def test_weights_are_short(weights: list[int], text: str) -> None:
    schedule = ScheduleBuilder(load_topology("ring:4"), "all_reduce", "test", weights=weights).build()
    assert format_weights(schedule) == text
