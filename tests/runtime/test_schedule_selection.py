"""Which schedule runs for which collective and size."""

from __future__ import annotations

from dataclasses import replace

import pytest

import weft
from weft.algorithms import direct, multitree, ring
from weft.errors import InputError, VerificationError
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector
from weft.schedule import Op, ScheduleBuilder
from weft.topology import load_topology

HOSTS = [[0, 1], [2, 3, 4]]


def test_a_schedule_runs_for_its_collective_and_nothing_else() -> None:
    schedule = multitree.all_reduce(load_topology("ring:5"))
    chooser = ScheduleSelector(5, load_inputs(schedule=schedule))
    assert chooser.choose("all_reduce", 1 << 20, 0) == (schedule, None)
    assert chooser.choose("all_gather", 1 << 20, 0)[0].algorithm == "direct"
    assert chooser.inputs.network is schedule.topology


def test_a_schedule_that_is_wrong_does_not_run() -> None:
    builder = ScheduleBuilder(load_topology("ring:3"), "broadcast", "forgetful", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op=Op.COPY)
    with pytest.raises(VerificationError, match="never receives"):
        ScheduleSelector(3, load_inputs(schedule=builder.build()))


def test_a_plan_and_a_schedule_at_once_are_refused() -> None:
    plan = weft.plan("ring:3", "1MiB", algorithms="ring")
    with pytest.raises(InputError, match="exclude each other"):
        ScheduleSelector(3, load_inputs(plan=plan, schedule=ring.all_reduce(load_topology("ring:3"))))


@pytest.mark.parametrize("what", ["plan", "schedule", "topology"])
def test_what_is_for_another_number_of_ranks_is_refused_with_both_named(what: str) -> None:
    given = {
        "plan": weft.plan("ring:3", "1MiB", algorithms="ring"),
        "schedule": ring.all_reduce(load_topology("ring:3")),
        "topology": "ring:3",
    }
    with pytest.raises(InputError, match=f"the {what} is for ring:3, 3 ranks; this job has 5"):
        ScheduleSelector(5, load_inputs(**{what: given[what]}))  # type: ignore[arg-type]


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast", "all_to_all"])
def test_a_topology_of_hosts_is_for_the_all_reduce_between_them(collective: str) -> None:
    chooser = ScheduleSelector(5, load_inputs(topology="ring:2"), hosts=HOSTS)
    between = chooser.choose("all_reduce", 1 << 20, 0)[0]
    assert (between.ranks, between.algorithm) == (5, "direct between hosts")
    assert chooser.choose(collective, 1 << 20, 0)[0].ranks == 5


def test_a_plan_of_hosts_is_spread_over_their_ranks() -> None:
    chooser = ScheduleSelector(
        5, load_inputs(plan=weft.plan("ring:2", "1MiB", algorithms="ring")), hosts=HOSTS
    )
    assert chooser.choose("all_reduce", 1 << 20, 0)[0].algorithm == "ring between hosts"


def test_the_same_choices_on_another_cluster() -> None:
    whole, broken = load_topology("ring:4"), load_topology("ring:4+fail=0-1")
    moved = ScheduleSelector(4, load_inputs(topology=whole, algorithm="ring")).on(broken)
    assert moved.choose("all_reduce", 4096, 0)[0].topology is broken
    planned = ScheduleSelector(4, load_inputs(schedule=direct.all_reduce(whole))).on(
        broken, weft.plan(broken, "1MiB")
    )
    assert planned.inputs.network is not None
    assert planned.inputs.network.digest == broken.digest
    assert ScheduleSelector(4).on(None).inputs.network is None


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_a_plan_or_schedule_serves_its_own_root_only(collective: str) -> None:
    plan = weft.plan("ring:4", "1MiB", collective=collective, root=2, algorithms="ring")
    schedule = plan.choose("1MiB").schedule
    for chooser in (
        ScheduleSelector(4, load_inputs(plan=plan)),
        ScheduleSelector(4, load_inputs(schedule=schedule)),
    ):
        assert chooser.choose(collective, 1 << 20, 2)[0] is schedule
        other = chooser.choose(collective, 1 << 20, 1)[0]
        ends = other.source if collective == "broadcast" else other.target
        assert set(ends.tolist()) == {1}


def test_a_wrong_schedule_in_a_plan_does_not_run() -> None:
    plan = weft.plan("ring:4", "1MiB", algorithms="ring")
    right = plan.schedules[0]
    op = right.schedule.op.copy()
    op[-1] ^= 1
    wrong = replace(right, schedule=replace(right.schedule, op=op))
    chooser = ScheduleSelector(4, load_inputs(plan=replace(plan, schedules=(wrong, *plan.schedules[1:]))))
    with pytest.raises(VerificationError):
        chooser.choose("all_reduce", 1 << 20, 0)
