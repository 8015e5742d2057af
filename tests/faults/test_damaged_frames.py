"""Data that is changed, lost, repeated or reordered between two ranks is noticed; no sum is wrong.

A selection of what benchmarks/runtime/frames.py goes through.
"""

from __future__ import annotations

import random

from support.faults import Nursery
from support.faults.damage import KINDS, Damage
from support.faults.frame_trial import run_damages
from support.faults.frames import ELEMENTS, OPERATIONS, draw_damage, frames_of

ONE_OPERATION = sum(frames_of(ELEMENTS))


def test_any_damage_is_noticed_and_leaves_nothing(nursery: Nursery) -> None:
    chance = random.Random(1)
    damages = [draw_damage(kind, chance) for kind in KINDS for _ in range(3)]
    found, left = run_damages(damages, nursery)
    assert left == []
    for suffered in found:
        assert suffered.problems() == [], suffered
    assert sum(suffered.happened for suffered in found) > len(KINDS)


def test_a_whole_frame_out_of_its_place_is_noticed(nursery: Nursery) -> None:
    opening, first, *_ = frames_of(ELEMENTS)
    damages = [
        Damage(kind, 1, ONE_OPERATION + opening, first, back=ONE_OPERATION)
        for kind in ("repeat", "swap", "replay", "drop")
    ]
    for suffered in run_damages(damages, nursery)[0]:
        assert (suffered.happened, suffered.detected) == (True, True), suffered


def test_the_frames_of_an_operation_are_where_the_tests_expect_them(nursery: Nursery) -> None:
    # Else damage that is meant for whole frames would hit parts of two.
    all_of_it = OPERATIONS * ONE_OPERATION
    beyond, last = run_damages([Damage("drop", 0, at) for at in (all_of_it, all_of_it - 1)], nursery)[0]
    assert not beyond.happened
    assert [end["end"] for end in beyond.ends] == ["done", "done"]
    assert last.happened
    assert last.ends[1]["end"] != "done", last
