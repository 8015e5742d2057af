"""The fast engine and the readable one agree to the picosecond, on schedules that nobody would write.

A random schedule need not compute anything: any table of legal transfers without two writes of one step into
one place can be run, and reaches corners that no algorithm visits.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples
from support.random_schedules import schedules
from support.reference.lowering import cut_segments
from support.reference.schedule_engine import simulate_reference

import weft
from weft.algorithms.registry import ALGORITHMS, Algorithm
from weft.errors import UnsupportedError
from weft.schedule import COLLECTIVES, Op, Schedule, ScheduleBuilder
from weft.simulation import Timeline


def check_agreement(schedule: Schedule, size_bytes: int, **options: Any) -> None:
    fast = weft.simulation.simulate(schedule, size_bytes, record=True, **{"segment_bytes": None} | options)
    slow = simulate_reference(schedule, size_bytes, **options)
    segments = cut_segments(
        schedule, size_bytes, options.get("segment_bytes"), options.get("element_bytes", 1)
    )
    assert fast.time_ps == slow.time_ps
    assert fast.link_busy_ps.tolist() == list(slow.link_busy_ps)
    assert fast.rank_finish_ps.tolist() == list(slow.rank_finish_ps)
    assert fast.segments == len(segments)
    assert first_starts(fast.timeline) == {
        (int(schedule.message_starts[segment.message]), segment.index): started_ps
        for segment, started_ps in zip(segments, slow.started_ps, strict=True)
        if segment.route
    }


def first_starts(timeline: Timeline | None) -> dict[tuple[int, int], int]:
    """When each (first row of its message, index in it) started on its first link."""
    assert timeline is not None
    starts: dict[tuple[int, int], int] = {}
    columns = (timeline.row, timeline.segment, timeline.start_ps)
    for row, index, start_ps in zip(*(column.tolist() for column in columns), strict=True):
        starts[row, index] = min(start_ps, starts.get((row, index), start_ps))
    return starts


@st.composite
def options(draw: st.DrawFn, largest: int = 10**10) -> tuple[int, dict[str, Any]]:
    """Size of the buffer, and how to run."""
    element_bytes = draw(st.sampled_from([1, 1, 4]))
    elements = draw(st.one_of(st.integers(0, 100), st.integers(0, largest)))
    size_bytes = elements * element_bytes
    cuts = draw(st.one_of(st.none(), st.integers(1, 15)), label="cuts")
    return size_bytes, {
        "element_bytes": element_bytes,
        "segment_bytes": None if cuts is None else max(1, size_bytes // cuts),
        "sharing": draw(st.sampled_from(["queue", "fluid"])),
    }


@examples(400)
@given(schedules(), options())
def test_both_engines_agree_on_any_schedule(schedule: Schedule, how: tuple[int, dict[str, Any]]) -> None:
    size_bytes, chosen = how
    event(chosen["sharing"])
    check_agreement(schedule, size_bytes, **chosen)


def test_the_critical_path_ends_though_segments_wait_for_each_other() -> None:
    """Each of three long paths round a ring waits, on its last link, for the next one's first."""
    builder = ScheduleBuilder(weft.load_topology("ring:6@bw=1GB/s,lat=1ns"), "all_reduce", "round", chunks=1)
    builder.add(step=0, chunk=0, src=[0, 2, 4], dst=[3, 5, 1], op=Op.COPY)
    schedule = builder.build()
    check_agreement(schedule, 1000)
    result = weft.simulation.simulate(schedule, 1000)
    assert result.critical_path[-1].end_ps == result.time_ps


SMALL = (
    "ring:4@lat=0ns",
    "ring:5@bw=1GB/s,back=300MB/s",
    "mesh:2x3",
    "torus:3x3@bw=7GB/s/2GB/s,lat=10ns",
    "torus:2x4@lat=0ns",
    "hypercube:2@links=2",
    "fullmesh:4",
    "switch:5@lat=0ns",
    "fattree:2,2,2@uplink=3GB/s",
    "hosts:3,1,2@intra=100GB/s,uplink=10GB/s/5GB/s/1GB/s",
    "bigraph:2,2@uplinks=2",
    "mi300x:1",
)
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"sharing": "fluid"},
    {"segment_bytes": 1500},
    {"sharing": "fluid", "segment_bytes": 1500},
)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda algorithm: str(algorithm.name))
def test_both_engines_agree_on_every_algorithm(algorithm: Algorithm) -> None:
    assert set(algorithm.collectives) <= set(COLLECTIVES)
    ways = cycle(WAYS)
    ran = 0
    for spec in SMALL:
        topology = weft.load_topology(spec)
        for collective in algorithm.collectives:
            try:
                schedule = algorithm.build(topology, collective, root=topology.ranks - 1)
            except UnsupportedError:
                continue
            for way in islice(ways, 2):
                check_agreement(schedule, 10_007, **way)
                ran += 1
    assert ran
