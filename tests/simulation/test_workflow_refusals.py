"""Workflows that cannot be, or never end, are refused with what, where and a way out."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.reference.workflow_engine import run_reference
from support.workflows import COMPUTE, both_ways, rows, times

import weft
from weft import limits
from weft.errors import InputError, LimitError, ScheduleError, SimulationError
from weft.simulation import LocalWork, Part, Passage, Resource, Workflow


def test_a_task_without_the_part_that_another_needs_never_ends() -> None:
    topology = both_ways(3)
    flow = Workflow(topology)
    cut = flow.pattern(rows(topology, (0, 0, 1), (1, 1, 2)), 10, parts=[1])
    flow.task("second half", [Part(cut, 1)])
    message = "no progress: task second half never ends at rank 1"
    for run in (flow.run, lambda: run_reference(flow)):
        with pytest.raises(SimulationError, match=f"^{message}$"):
            run()


def test_a_task_that_waits_for_a_token_for_ever_is_named_with_its_pool() -> None:
    """Rank 0 holds its token for what rank 1 sends in its second stage, for which it has none."""
    topology = both_ways(2)
    flow = Workflow(topology, [], [1])
    cut = flow.pattern(rows(topology, (0, 0, 1), (1, 1, 0)), 10, parts=[1])
    flow.task("waits", [LocalWork(None, 1)], after=[flow.task("pause", [LocalWork(None, 5)])], pool=0)
    flow.task("wrong way round", [Part(cut, 1), Part(cut, 0)], pool=0)
    message = "no progress: task waits never ends at rank 0, waits for pool 0"
    for run in (flow.run, lambda: run_reference(flow)):
        with pytest.raises(SimulationError, match=f"^{message}$"):
            run()


def flow_with_all() -> Workflow:
    topology = both_ways(3)
    flow = Workflow(topology, [COMPUTE], [1, 1])
    flow.pattern(rows(topology, (0, 0, 1), (1, 1, 2)), 10, parts=[1])
    flow.pattern(rows(topology, (0, 0, 1)), 10)
    flow.task("first", [])
    return flow


@pytest.mark.parametrize(
    ("stages", "options", "problem"),
    [
        ([], {"after": [1]}, r"task bad: after 1; there are tasks 0 to 0 before it"),
        ([], {"after": [-1]}, r"task bad: after -1; there are tasks 0 to 0 before it"),
        ([Part(0), Part(1)], {}, "task bad: its stages are parts of several patterns; make a task for each"),
        ([Part(0, 1), Part(0, 1)], {}, r"task bad: enters parts \[1, 1\]; each once at most"),
        ([Part(0, 2)], {}, "task bad: there is no part 2 of pattern 0"),
        ([Part(2)], {}, "task bad: there is no part 0 of pattern 2"),
        ([Part(-1)], {}, "task bad: there is no part 0 of pattern -1"),
        ([LocalWork(1, 5)], {}, "resource 1: there are 0 to 0"),
        ([LocalWork(0, -5)], {}, "task bad: amounts -5 to -5; they are at least 0 and below 2"),
        (
            [LocalWork(None, np.array([1, 2, 1 << 61]))],
            {},
            "task bad: amounts 1 to 2305843009213693952; they",
        ),
        ([LocalWork(0, np.array([1, 2]))], {}, r"one for each of 3 ranks, not int64 of shape \(2,\)"),
        ([LocalWork(0, np.array([1.5, 2, 3]))], {}, "one for each of 3 ranks, not float64"),
        ([LocalWork(0, 1 << 70)], {}, "task bad: amounts are one whole number below 2"),
        ([LocalWork(0, 5, pool=2)], {}, r"task bad: takes from pools \[2\]; each of 0 to 1 once at most"),
        ([LocalWork(0, 5, pool=1)], {"pool": 1}, r"task bad: takes from pools \[1, 1\]; each of 0 to 1 once"),
        ([], {"pool": -1}, r"task bad: takes from pools \[-1\]"),
        (
            [],
            {"priority": -(1 << 70)},
            "task bad: its priority or that negated: 1,180,591,620,717,411,303,424",
        ),
    ],
)
def test_a_bad_task_is_refused_and_not_added(
    stages: list[Part | LocalWork], options: dict[str, Any], problem: str
) -> None:
    flow = flow_with_all()
    with pytest.raises(InputError, match=problem):
        flow.task("bad", stages, **options)
    assert flow.tasks == 1
    assert flow.task("good", [Part(0), Part(0, 1)], after=[0], priority=5, pool=1) == 1
    assert flow.run().time_ps == 20


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"segment_bytes": 0}, InputError, "segment_bytes 0: must be at least 1"),
        ({"segment_bytes": -4}, InputError, "segment_bytes -4: must be at least 1"),
        ({"size_bytes": -1}, ScheduleError, "-1 bytes are not a whole number"),
        ({"size_bytes": limits.MAX_SIZE_BYTES + 1}, LimitError, "size_bytes: 1,125,899,906,842,625 is more"),
        ({"size_bytes": 1 << 40, "segment_bytes": 1}, LimitError, "segments; use larger segments"),
        ({"parts": [0]}, InputError, r"parts \[0\]: each begins at a later step .* from 1 to 2"),
        ({"parts": [3]}, InputError, r"by hand of 3 steps: parts \[3\]"),
        ({"parts": [2, 1]}, InputError, r"parts \[2, 1\]"),
        ({"parts": [1, 1]}, InputError, r"parts \[1, 1\]"),
        ({"before": [Passage(1)]}, InputError, "resource 1: there are 0 to 0"),
        ({"after": [Passage(-1)]}, InputError, "resource -1: there are 0 to 0"),
    ],
)
def test_a_bad_pattern_is_refused(options: dict[str, Any], error: type[Exception], problem: str) -> None:
    topology = both_ways(3)
    flow = Workflow(topology, [COMPUTE])
    schedule = rows(topology, (0, 0, 1), (1, 1, 2), (2, 2, 0))
    with pytest.raises(error, match=problem):
        flow.pattern(schedule, **{"size_bytes": 10} | options)
    assert flow.patterns == 0


def test_a_schedule_of_another_network_is_refused() -> None:
    with pytest.raises(InputError, match="by hand was made for ring by hand, not for ring:2"):
        Workflow(weft.load_topology("ring:2")).pattern(rows(both_ways(3), (0, 0, 1)), 10)


@pytest.mark.parametrize("pools", [[0], [1, -1], [1] * 65, [limits.MAX_SEGMENTS + 1]])
def test_bad_pools_are_refused(pools: list[int]) -> None:
    with pytest.raises(InputError, match="at most 64, of at least one token each"):
        Workflow(both_ways(2), [], pools)


def test_all_of_64_pools_can_be_used() -> None:
    flow = Workflow(both_ways(2), [], [1] * 64)
    for number in range(2):
        flow.task(f"{number}", [LocalWork(None, 1, pool) for pool in range(63)], pool=63)
    assert times(flow)[1] == ([63, 63], [126, 126])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Resource("", 1), "the name of a resource must not be empty"),
        (lambda: Resource("m", 0), "resource m: 0 B/s and 0 ps; a bandwidth is at least 1"),
        (lambda: Resource("m", 1, -1), "resource m: 1 B/s and -1 ps"),
        (lambda: Resource("m", 1 << 62), "bandwidth of m: 4,611,686,018,427,387,904 is more than"),
        (lambda: Passage(0, -1), "a passage of -1 and 1 bytes a byte; both are at least 0"),
        (lambda: Passage(0, 1, Fraction(-1, 2)), "a passage of 1 and -1/2 bytes a byte"),
        (
            lambda: Passage(0, Fraction(0.1)),
            "common denominator: 36,028,797,018,963,968 is more",
        ),
        (lambda: Passage(0, 1 << 31), "ratio over a common denominator: 2,147,483,648 is more than"),
        (lambda: Passage(0, Fraction(1, 65_537), Fraction(1, 65_539)), "ratio over a common denominator"),
    ],
)
def test_a_resource_or_passage_that_cannot_be_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make()


def test_a_time_that_cannot_be_counted_is_refused() -> None:
    flow = Workflow(both_ways(2), [Resource("slow", 1)])
    flow.task("long", [LocalWork(None, limits.MAX_TIME_PS)])
    assert flow.run().time_ps == limits.MAX_TIME_PS
    flow.task("longer", [LocalWork(None, 1)], after=[0])
    with pytest.raises(LimitError, match="2 tasks on ring by hand: takes more than the 2,305,843 s"):
        flow.run()
    flow = Workflow(both_ways(2), [Resource("slow", 1)])
    flow.task("long", [LocalWork(0, limits.MAX_TIME_PS)])
    with pytest.raises(LimitError, match="takes more than"):
        flow.run()


def test_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = both_ways(2)
    monkeypatch.setattr(limits, "MAX_SEGMENTS", 100)
    flow = Workflow(topology)
    many = flow.pattern(rows(topology, (0, 0, 1)), 40, segment_bytes=1)
    for _ in range(2):
        flow.task("many", [Part(many)])
    assert flow.run().segments == 80
    flow.task("many", [Part(many)])
    with pytest.raises(
        LimitError, match="3 tasks on ring by hand: more than 100 segments; use larger segments"
    ):
        flow.run()
    with pytest.raises(LimitError, match="resources of all ranks: 102 is more than the 100"):
        Workflow(topology, [COMPUTE] * 51)
    with pytest.raises(LimitError, match="stages of all tasks: 101 is more than the 100"):
        flow.task("long", [LocalWork(None, 1)] * 98)
    flow = Workflow(topology)
    for _ in range(50):
        flow.task("pause", [])
    with pytest.raises(LimitError, match="tasks at all ranks: 102 is more than the 100"):
        flow.task("pause", [])


def test_amounts_are_those_of_the_moment() -> None:
    amounts = np.array([1, 2, 3])
    flow = Workflow(both_ways(3))
    flow.task("pause", [LocalWork(None, amounts)])
    amounts[:] = 100
    assert flow.run().ended_ps.tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("number", [1.5, math.nan, "3", None, True])
def test_only_whole_numbers_are_taken(number: Any) -> None:
    with pytest.raises(InputError, match="no whole number"):
        Resource("odd", number)
    with pytest.raises(InputError, match="no whole number"):
        Resource("odd", 1, number)
    with pytest.raises(InputError, match="no whole number"):
        Workflow(both_ways(2), (), [number])
    flow = Workflow(both_ways(2))
    with pytest.raises(InputError, match="no whole number"):
        flow.task("odd", [], priority=number)
    with pytest.raises(InputError, match="no whole number"):
        flow.pattern(rows(flow.topology, (0, 0, 1)), number)


def test_a_passage_takes_no_float() -> None:
    with pytest.raises(InputError, match="fractions"):
        Passage(0, copy=math.inf)  # type: ignore[arg-type]
