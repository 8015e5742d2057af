"""Work on a schedule is estimated, or counted where it cannot be, and bounded; large schedules pass."""

from __future__ import annotations

import pytest
from support import costly

import weft
from weft import _core, limits
from weft.algorithms import registry
from weft.errors import LimitError
from weft.packets import make_tables, simulate_tables
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector
from weft.topology import load_topology
from weft.verification import inspect, measure_contention
from weft.verification.checking_work import estimate_checks

LARGE = [
    ("ring", "all_reduce", "ring:1024"),
    ("direct", "all_to_all", "fattree:32,32,32"),
]
"""Of the largest in benchmarks/simulation and benchmarks/verification."""


@pytest.mark.parametrize(("name", "collective", "spec"), LARGE, ids=lambda value: value)
def test_large_schedules_need_no_permission(
    monkeypatch: pytest.MonkeyPatch, name: str, collective: str, spec: str
) -> None:
    schedule = registry.find(name).build(load_topology(spec), collective)
    assert estimate_checks(schedule) < limits.MAX_WORK / 2

    class Begun(Exception):
        """The estimate was small enough."""

    def begin(**_given: object) -> None:
        raise Begun

    monkeypatch.setattr(_core, "simulate", begin)
    with pytest.raises(Begun):
        weft.simulate(schedule, "64MiB", segment_bytes=None, max_work=limits.MAX_WORK / 2)


def test_a_search_for_slots_is_estimated_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = costly.swapped_in_reverse(2000)
    assert inspect(schedule).slots == 2000
    monkeypatch.setattr(_core, "minimum_slots", lambda *_given: pytest.fail("the search was begun"))
    with pytest.raises(LimitError, match="finding the fewest receive slots of costly on ring:2"):
        weft.verify(schedule, max_work=9e5)
    with pytest.raises(weft.VerificationError, match="deadlock"):
        weft.verify(schedule, max_work=9e5, slots=2)


def test_contention_is_estimated_by_the_links_that_are_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = costly.long_ways(5000)
    assert measure_contention(schedule).max_flows == 1
    monkeypatch.setattr(_core, "count_flows", lambda *_given: pytest.fail("the count was begun"))
    with pytest.raises(LimitError, match="counting the flows of costly on ring:4096: about 41,000,000 op"):
        measure_contention(schedule, max_work=4e7)


def test_paths_around_failures_are_estimated_too() -> None:
    grid = load_topology("torus:64x64+fail=0-1")
    other = range(1, grid.ranks)
    grid.routes([0] * len(other), other, max_work=1e9)
    with pytest.raises(LimitError, match="finding the paths of 32 pairs of ranks: about"):
        grid.routes([0] * 63, range(1, 64), max_work=1e6)


def test_flows_that_share_links_are_counted_as_they_go() -> None:
    schedule = registry.find("direct").build(load_topology("torus:16x16"), "all_gather")
    weft.simulate(schedule, "1MiB", segment_bytes=None, max_work=1e8)
    with pytest.raises(LimitError, match="torus:16x16, fluid: more than the 100,000,000 oper"):
        weft.simulate(schedule, "1MiB", segment_bytes=None, max_work=1e8, sharing="fluid")


def test_what_messages_of_tables_wait_for_is_counted() -> None:
    schedule = costly.waits_for_all(800)
    tables = make_tables(schedule, "1MiB")
    assert sum(len(entry.after) for entry in tables.ranks[0]) == 799  # all of its messages are one entry
    with pytest.raises(LimitError, match="tables of costly: more than the 30,000,000 operations"):
        make_tables(schedule, "1MiB", max_work=3e7)


def test_packets_are_estimated_before_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = registry.find("ring").build(load_topology("ring:8"), "all_reduce")
    tables = make_tables(ring, "64MiB")
    monkeypatch.setattr(_core, "execute_tables", lambda *_given: pytest.fail("packets were moved"))
    for detail, least in (("packet", 1e8), ("message", 5e6)):
        with pytest.raises(LimitError, match="packets of ring on ring:8: about"):
            simulate_tables(tables, detail=detail, max_work=least)


def test_a_job_refuses_a_schedule_that_takes_too_long_to_verify() -> None:
    schedule = registry.find("ring").build(load_topology("ring:4"), "all_reduce")
    ScheduleSelector(4, load_inputs(schedule=schedule))
    with pytest.raises(LimitError, match="verifying ring all_reduce on ring:4"):
        ScheduleSelector(4, load_inputs(schedule=schedule, max_work=1000))
    assert ScheduleSelector(4, load_inputs(schedule=schedule, max_work=None)).inputs.schedule is schedule


def test_a_suggested_bound_is_enough() -> None:
    for work in (1.0, 9.99e9, 1e10, 9.5e15):
        with pytest.raises(LimitError) as told:
            limits.check_work("it", work, work / 2)
        limits.check_work("it", work, float(str(told.value).split("--max-work ")[1].split()[0]))
