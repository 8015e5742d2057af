"""The oracle that other tests trust, against schedules whose outcome is plain to see."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from support.oracle import Hazard, Place, accepts, run
from support.schedules import all_gathers, columns, relayed_all_to_all, ring_all_reduce, routed_all_reduce

from weft.schedule import Schedule
from weft.topology import load_topology


def on_three_ranks(*rows: tuple[int, ...], collective: str = "all_reduce") -> Schedule:
    """One chunk on ring:3; rows are (step, src, dst, op[, src_slot, dst_slot])."""
    table: dict[str, Any] = {}
    for index, name in enumerate(("step", "src", "dst", "op", "src_slot", "dst_slot")):
        table[name] = [row[index] if index < len(row) else 0 for row in rows]
    source, target = {"all_reduce": (-1, -1), "reduce": (-1, 0), "broadcast": (0, -1)}[collective]
    return Schedule(
        **columns(
            topology=load_topology("ring:3"),
            collective=collective,
            weights=[1],
            denominator=1,
            source=[source],
            target=[target],
            chunk=[0] * len(rows),
            route=[-1] * len(rows),
            **table,
        )
    )


@pytest.mark.parametrize(
    "schedule", [ring_all_reduce(load_topology("ring:5")), routed_all_reduce(), relayed_all_to_all()]
)
def test_correct_schedules_are_accepted(schedule: Schedule) -> None:
    assert accepts(schedule)


@given(all_gathers())
def test_random_trees_gather(schedule: Schedule) -> None:
    assert accepts(schedule)


def test_reads_of_a_step_precede_its_writes() -> None:
    swapped = on_three_ranks((0, 0, 1, 1), (0, 1, 0, 1))
    assert run(swapped)[Place(0, 0, 0)] == run(swapped)[Place(1, 0, 0)] == Counter([0, 1])


def test_several_reduces_into_one_place_add_up() -> None:
    assert accepts(on_three_ranks((0, 1, 0, 1), (0, 2, 0, 1), collective="reduce"))


def test_a_contribution_that_counts_twice_is_refused() -> None:
    twice = on_three_ranks((0, 1, 0, 1), (1, 1, 0, 1), (1, 2, 0, 1), collective="reduce")
    assert run(twice)[Place(0, 0, 0)] == Counter([0, 1, 1, 2])
    assert not accepts(twice)


@pytest.mark.parametrize("second", [(0, 2, 0, 0), (0, 2, 0, 1)])
def test_a_copy_and_another_write_in_one_step_are_a_hazard(second: tuple[int, ...]) -> None:
    schedule = on_three_ranks((0, 1, 0, 0), second)
    with pytest.raises(Hazard, match=r"step 0.*rank=0.*2 times"):
        run(schedule)
    assert not accepts(schedule)


def test_what_was_never_written_is_poison_and_spreads() -> None:
    copied = on_three_ranks((0, 1, 0, 0), collective="broadcast")
    assert run(copied) == {}
    added = on_three_ranks((0, 0, 1, 1), (1, 1, 2, 0), collective="broadcast")
    assert run(added) == {Place(0, 0, 0): Counter([0])}


def test_scratch_slots_are_places_of_their_own() -> None:
    kept = on_three_ranks((0, 1, 0, 0, 0, 2), (1, 0, 0, 1, 2, 0))
    values = run(kept)
    assert values[Place(0, 2, 0)] == Counter([1])
    assert values[Place(0, 0, 0)] == Counter([0, 1])
    assert values[Place(1, 0, 0)] == Counter([1])
