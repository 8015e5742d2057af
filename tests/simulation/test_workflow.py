"""Every rule of a workflow, on cases small enough to compute by hand.

Links and resources here serve one byte per picosecond unless said otherwise, so that sizes are durations.
"""

from __future__ import annotations

import doctest
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.workflows import BYTE_PER_PS, COMPUTE, both_ways, rows, times

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.schedule import Op, ScheduleBuilder
from weft.simulation import LocalWork, Part, Passage, Resource, Workflow

PAGE = Path(__file__).parents[2] / "docs" / "workflow.md"


# One collective alone


@pytest.mark.parametrize(
    ("spec", "algorithm", "size_bytes", "segment_bytes"),
    [
        ("ring:4@bw=1GB/s,lat=1us", "ring", 4_000_000, None),
        ("torus:4x4", "multitree", 1 << 20, None),
        ("torus:4x4", "bucket", 1 << 20, 1 << 14),
        ("hosts:4,3,2", "ring", 1 << 20, 1 << 15),
        ("mesh:3x3", "direct", 1000, None),
        ("torus:3x3", "double_binary_tree", 1 << 18, 1 << 12),
        ("switch:8", "halving_doubling", 12_345, 1000),
    ],
)
def test_a_collective_alone_takes_what_simulate_says(
    spec: str, algorithm: str, size_bytes: int, segment_bytes: int | None
) -> None:
    topology = weft.load_topology(spec)
    schedule = ALGORITHMS[algorithm].build(topology, "all_reduce", root=0)
    flow = Workflow(topology)
    flow.task("alone", [Part(flow.pattern(schedule, size_bytes, segment_bytes=segment_bytes))])
    run, alone = flow.run(), weft.simulation.simulate(schedule, size_bytes, segment_bytes=segment_bytes)
    assert run.time_ps == alone.time_ps
    assert run.segments == alone.segments
    assert run.ended_ps.tolist() == [alone.rank_finish_ps.tolist()]
    assert run.busy_ps.tolist() == alone.link_busy_ps.tolist()


# Stages and tasks


def test_a_task_begins_where_those_before_it_have_ended_there() -> None:
    flow = Workflow(both_ways(3), [COMPUTE])
    first = flow.task("first", [LocalWork(0, np.array([10, 20, 30]))])
    other = flow.task("other", [LocalWork(None, np.array([15, 15, 15]))])
    flow.task("second", [LocalWork(0, 1), LocalWork(0, 2)], after=[first, other, first])
    assert times(flow)[2] == ([15, 20, 30], [18, 23, 33])


def test_ranks_meet_in_collectives_only() -> None:
    """What arrives before its receiver has come is applied when it comes; the sender does not wait."""
    topology = both_ways(3, latency_ps=2)
    flow = Workflow(topology, [COMPUTE])
    work = flow.task("work", [LocalWork(0, np.array([10, 50, 3]))])
    flow.task("send", [Part(flow.pattern(rows(topology, (0, 0, 1)), 5))], after=[work])
    flow.task("after", [LocalWork(0, 1)], after=[1])
    assert times(flow)[1:] == [([10, 50, 3], [15, 50, 3]), ([15, 50, 3], [16, 51, 4])]


def test_a_rank_enters_one_part_after_the_other() -> None:
    """Rank 0 would send on at 4, but is in the second part only when its pause is over."""
    topology = both_ways(3)
    flow = Workflow(topology)
    there_and_back = rows(topology, (0, 2, 0), (1, 0, 1))
    whole = flow.pattern(there_and_back, 4)
    flow.task("whole", [Part(whole)])
    assert times(flow) == [([0, 0, 0], [8, 8, 4])]
    cut = Workflow(topology)
    halves = cut.pattern(there_and_back, 4, parts=[1])
    cut.task("halves", [Part(halves, 0), LocalWork(None, np.array([100, 0, 7])), Part(halves, 1)])
    assert times(cut) == [([0, 0, 0], [108, 108, 11])]


def test_a_rank_with_nothing_to_do_is_through_at_once() -> None:
    topology = both_ways(4)
    flow = Workflow(topology, [COMPUTE])
    flow.task("pair", [Part(flow.pattern(rows(topology, (0, 0, 1)), 9))])
    flow.task(
        "nothing", [Part(flow.pattern(rows(topology, (0, 0, 1)), 0)), LocalWork(0, 0), LocalWork(None, 0)]
    )
    flow.task("empty", [], after=[0])
    flow.task("no rows", [Part(flow.pattern(rows(topology), 9))])
    pair = [9, 9, 0, 0]
    assert times(flow) == [([0] * 4, pair), ([0] * 4, [0] * 4), (pair, pair), ([0] * 4, [0] * 4)]


def test_no_tasks_take_no_time() -> None:
    run = Workflow(both_ways(3), [COMPUTE], [1]).run(record=True)
    assert (run.time_ps, run.began_ps.shape, run.busy_ps.tolist()) == (0, (0, 3), [0] * 9)


# Servers


def test_rings_that_share_nothing_do_not_disturb_each_other() -> None:
    topology = both_ways(4, latency_ps=3)
    ranks = np.arange(4)
    flow = Workflow(topology)
    alone = []
    for ahead in (1, -1):
        builder = ScheduleBuilder(topology, "all_gather", "one way", chunks=4)
        for step in range(3):
            builder.add(
                step=step, chunk=(ranks - ahead * step) % 4, src=ranks, dst=(ranks + ahead) % 4, op=Op.COPY
            )
        schedule = builder.build()
        flow.task("ring", [Part(flow.pattern(schedule, 400))])
        alone.append(weft.simulation.simulate(schedule, 400))
    run = flow.run()
    assert run.ended_ps.tolist() == [one.rank_finish_ps.tolist() for one in alone]
    assert run.busy_ps.tolist() == (alone[0].link_busy_ps + alone[1].link_busy_ps).tolist()


def two_sends(priorities: tuple[int, int], pools: Sequence[int] = (), pool: int | None = None) -> Workflow:
    """Three segments of 10 from rank 0 to rank 1, and the same again from 15 on."""
    topology = both_ways(3)
    flow = Workflow(topology, [], pools)
    send = flow.pattern(rows(topology, (0, 0, 1)), 30, segment_bytes=10)
    later = flow.task("pause", [LocalWork(None, 15)])
    flow.task("first", [Part(send)], priority=priorities[0], pool=pool)
    flow.task("second", [Part(send)], after=[later], priority=priorities[1], pool=pool)
    return flow


def test_of_one_priority_the_earlier_task_goes_first() -> None:
    assert [ended[1] for _, ended in times(two_sends((0, 0)))[1:]] == [30, 60]


def test_the_smaller_priority_overtakes_between_segments() -> None:
    assert [ended[1] for _, ended in times(two_sends((0, -1)))[1:]] == [60, 50]


def test_with_one_token_one_goes_after_the_other() -> None:
    found = times(two_sends((0, -1), [1], 0))[1:]
    assert [(began[1], ended[1]) for began, ended in found] == [(0, 30), (30, 60)]


def test_a_segment_passes_endpoints_like_links() -> None:
    """10 bytes are 20 at the sender's memory, 10 on the link, and 5 at the receiver's memory."""
    topology = both_ways(3, latency_ps=2)
    flow = Workflow(topology, [Resource("memory", BYTE_PER_PS, 1)])
    send = rows(topology, (0, 0, 1))
    flow.task(
        "send", [Part(flow.pattern(send, 10, before=[Passage(0, 2)], after=[Passage(0, Fraction(1, 2))]))]
    )
    # The link starts at 1 + (20 - 10), the receiver's memory at 11 + 2 + (10 - 5), and ends at 18 + 5 + 1.
    assert times(flow) == [([0, 0, 0], [20, 24, 0])]
    assert flow.run().busy_ps.tolist() == [10, 0, 0, 0, 0, 0, 20, 5, 0]


def test_what_a_passage_takes_depends_on_what_the_receiver_does() -> None:
    topology = both_ways(3)
    busy = []
    for op in Op:
        flow = Workflow(topology, [COMPUTE])
        pattern = flow.pattern(rows(topology, (0, 0, 1), op=op), 10, after=[Passage(0, Fraction(1, 3), 0)])
        flow.task("send", [Part(pattern)])
        times(flow)
        busy.append(flow.run().busy_ps[-3:].tolist())
    assert dict(zip(Op, busy, strict=True)) == {Op.COPY: [0, 4, 0], Op.REDUCE: [0, 0, 0]}


def test_a_move_within_a_rank_passes_nothing() -> None:
    topology = both_ways(3)
    builder = ScheduleBuilder(topology, "all_reduce", "move", chunks=1)
    builder.add(step=0, chunk=0, src=1, dst=1, op=Op.COPY, dst_slot=1)
    flow = Workflow(topology, [COMPUTE])
    flow.task("move", [Part(flow.pattern(builder.build(), 10, before=[Passage(0)], after=[Passage(0)]))])
    assert times(flow) == [([0, 0, 0], [0, 0, 0])]
    assert not flow.run().busy_ps.any()


@pytest.mark.parametrize("receiver", [0, 1, 2])
def test_a_ranks_own_work_goes_before_what_comes_in_for_the_same_task(receiver: int) -> None:
    """At 30 all wait for the receiver's compute unit: two segments of 5 since 5, its work of 20 since 10."""
    topology = both_ways(3)
    flow = Workflow(topology, [COMPUTE])
    ranks = np.arange(3)
    sends = [(0, src, receiver) for src in ranks.tolist() if src != receiver]
    pattern = flow.pattern(rows(topology, *sends, op=Op.REDUCE), 5, after=[Passage(0)])
    flow.task("before", [LocalWork(0, 30)], priority=-1)
    pause, work = (np.where(ranks == receiver, amount, 0) for amount in (10, 20))
    flow.task("own", [LocalWork(None, pause), LocalWork(0, work), Part(pattern)])
    assert times(flow)[1][1][receiver] == 30 + 20 + 5 + 5
    spans = flow.run(record=True).spans
    assert spans is not None
    here = spans.resource == topology.links + receiver
    assert sorted(zip(spans.start_ps[here].tolist(), spans.end_ps[here].tolist(), strict=True)) == [
        (0, 30),
        (30, 50),
        (50, 55),
        (55, 60),
    ]


# Pools


def test_ranks_take_tokens_in_one_order() -> None:
    """Rank 1 is ready for the second at once, but the first is ahead in rank 0's order, which came first."""
    topology = both_ways(3)
    flow = Workflow(topology, [], [1])
    send = flow.pattern(rows(topology, (0, 0, 1)), 10)
    late = flow.task("late at rank 1", [LocalWork(None, np.array([0, 40, 0]))])
    flow.task("first", [Part(send)], after=[late], pool=0)
    flow.task("second", [Part(send)], pool=0, priority=1)
    assert times(flow)[1:] == [([0, 40, 0], [10, 40, 0]), ([10, 40, 0], [20, 40, 0])]


def test_ranks_that_are_ready_in_opposite_orders_do_not_fill_each_others_buffers() -> None:
    """Were each rank free to choose, each would wait with its one token for the other for ever."""
    topology = both_ways(2)
    flow = Workflow(topology, [], [1])
    swap = flow.pattern(rows(topology, (0, 0, 1), (0, 1, 0)), 10)
    for slow in (0, 1):
        pause = np.zeros(2, np.int64)
        pause[slow] = 5
        ready = flow.task("pause", [LocalWork(None, pause)])
        flow.task("swap", [Part(swap)], after=[ready], pool=0)
    # At 0 rank 0 is ready for the second only, which is the first in the order for this reason.
    assert [ended for _, ended in times(flow)] == [[5, 0], [25, 25], [0, 5], [15, 15]]


def test_among_those_that_wait_the_smallest_priority_then_the_longest_wait_comes_first() -> None:
    topology = both_ways(2)
    flow = Workflow(topology, [], [1])
    flow.task("holds", [LocalWork(None, 100)], pool=0)
    for name, arrives, priority in (("late", 20, 0), ("early", 10, 0), ("urgent", 30, -1), ("idle", 5, 1)):
        pause = flow.task("pause", [LocalWork(None, arrives)])
        flow.task(name, [LocalWork(None, 1)], after=[pause], priority=priority, pool=0)
    began = {flow.names[number]: found[0][0] for number, found in enumerate(times(flow))}
    assert [began[name] for name in ("urgent", "early", "late", "idle")] == [100, 101, 102, 103]


def test_a_stages_token_is_held_until_the_next_stage_begins() -> None:
    """The first task's second stage waits for a token of pool 1 until 50, and keeps its token of pool 0."""
    topology = both_ways(2)
    flow = Workflow(topology, [], [1, 1])
    flow.task("holds", [LocalWork(None, 50, pool=1)])
    pause = flow.task("pause", [LocalWork(None, 1)])
    flow.task("two", [LocalWork(None, 10, pool=0), LocalWork(None, 5, pool=1)], after=[pause])
    flow.task("waits", [LocalWork(None, 1, pool=0)], after=[pause])
    assert times(flow)[2:] == [([1, 1], [55, 55]), ([50, 50], [51, 51])]


def test_a_task_keeps_its_place_at_every_pool_that_it_takes_from() -> None:
    """The first is in the order since 0, so the second gets its token of pool 1 only after it, at 10."""
    flow = Workflow(both_ways(2), [], [1, 2])
    flow.task("two", [LocalWork(None, 10, pool=0), LocalWork(None, 5, pool=1)])
    flow.task("one", [LocalWork(None, 1, pool=1)])
    assert times(flow) == [([0, 0], [15, 15]), ([10, 10], [11, 11])]


def test_a_task_holds_its_own_token_to_its_end() -> None:
    flow = Workflow(both_ways(2), [], [1, 1])
    flow.task("two", [LocalWork(None, 10, pool=1), LocalWork(None, 5)], pool=0)
    flow.task("other", [LocalWork(None, 1)], pool=0)
    flow.task("inner", [LocalWork(None, 1, pool=1)])
    assert [began[0] for began, _ in times(flow)] == [0, 15, 15]


def test_the_token_of_a_stage_is_held_until_the_next_one_is() -> None:
    flow = Workflow(both_ways(2), [], [1, 1])
    flow.task("three", [LocalWork(None, 10, pool=0), LocalWork(None, 5), LocalWork(None, 3, pool=1)])
    flow.task("first", [LocalWork(None, 1, pool=0)])
    flow.task("second", [LocalWork(None, 1, pool=1)])
    assert [began[0] for began, _ in times(flow)] == [0, 15, 18]


def test_a_task_without_stages_takes_its_turn_at_its_pool() -> None:
    flow = Workflow(both_ways(2), [], [1])
    flow.task("holds", [LocalWork(None, 10)], pool=0)
    flow.task("empty", [], pool=0)
    assert times(flow)[1] == ([10, 10], [10, 10])


@given(st.data())
def test_tiny_pools_and_late_ranks_cannot_deadlock(data: st.DataObject) -> None:
    """Exchanges that every rank is ready for in an order of its own, and that hold tokens at two levels."""
    topology = both_ways(3)
    flow = Workflow(topology, [COMPUTE], [data.draw(st.integers(1, 2)), 1, 1])
    sums = rows(topology, (0, 0, 1), (0, 1, 2), (0, 2, 0), (1, 1, 0), (1, 2, 1), (1, 0, 2))
    pattern = flow.pattern(sums, 12, parts=[1])
    amounts = st.lists(st.integers(0, 30), min_size=3, max_size=3)
    for number in range(data.draw(st.integers(2, 6))):
        ready = flow.task(
            "work", [LocalWork(data.draw(st.sampled_from([0, None])), np.array(data.draw(amounts)))]
        )
        inner = data.draw(st.permutations([None, 1, 2]))
        stages = [
            Part(pattern, 0, inner[0]),
            LocalWork(None, np.array(data.draw(amounts)), inner[1]),
            Part(pattern, 1, inner[2]),
        ]
        outer = data.draw(st.sampled_from([None, 0]))
        flow.task("sums", stages, after=[ready], priority=-number, pool=outer)
    times(flow)


# What a run did


@st.composite
def busy_workflows(draw: st.DrawFn) -> Workflow:
    topology = weft.load_topology(
        draw(st.sampled_from(["torus:3x3@bw=1GB/s", "hosts:2,2@intra=4GB/s,uplink=1GB/s", "switch:4"]))
    )
    flow = Workflow(topology, [COMPUTE, Resource("memory", 5 * 10**9)], [2])
    for number in range(draw(st.integers(1, 4))):
        algorithm = draw(st.sampled_from(["ring", "direct", "multitree", "double_binary_tree"]))
        schedule = ALGORITHMS[algorithm].build(topology, "all_reduce", root=0)
        pattern = flow.pattern(
            schedule, draw(st.integers(0, 20_000)), segment_bytes=1000, after=[Passage(1, 1, 2)]
        )
        work = LocalWork(0, draw(st.integers(0, 10**7)))
        flow.task("sums", [work, Part(pattern)], priority=-number, pool=draw(st.sampled_from([None, 0])))
    return flow


@given(busy_workflows())
def test_spans_of_a_resource_do_not_overlap_and_sum_up(flow: Workflow) -> None:
    run = flow.run(record=True)
    spans = run.spans
    assert spans is not None
    assert run.busy_ps.any() == bool(len(spans.task))
    total = np.zeros_like(run.busy_ps)
    np.add.at(total, spans.resource, spans.end_ps - spans.start_ps)
    assert total.tolist() == run.busy_ps.tolist()
    order = np.lexsort((spans.start_ps, spans.resource))
    same = np.diff(spans.resource[order]) == 0
    assert (spans.start_ps[order][1:][same] >= spans.end_ps[order][:-1][same]).all()
    assert (spans.start_ps >= run.began_ps.min(axis=1)[spans.task]).all()
    assert (spans.end_ps <= run.ended_ps.max(axis=1)[spans.task]).all()


@given(busy_workflows())
def test_every_byte_crosses_the_links_of_its_route_once(flow: Workflow) -> None:
    spans = flow.run(record=True).spans
    assert spans is not None
    links = flow.topology.links
    carried = np.zeros(links, np.int64)
    np.add.at(carried, spans.resource[spans.resource < links], spans.size_bytes[spans.resource < links])
    assert carried.tolist() == bytes_of_rows(flow).tolist()


def test_a_link_is_busy_for_its_bytes() -> None:
    topology = both_ways(4)
    flow = Workflow(topology)
    for algorithm, segment_bytes in (("ring", None), ("direct", 7), ("double_binary_tree", 100)):
        schedule = ALGORITHMS[algorithm].build(topology, "all_reduce", root=0)
        flow.task(algorithm, [Part(flow.pattern(schedule, 1001, segment_bytes=segment_bytes))])
    assert flow.run().busy_ps.tolist() == bytes_of_rows(flow).tolist()


def bytes_of_rows(flow: Workflow) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many bytes of all tasks cross each link, by their schedules."""
    total = np.zeros(flow.topology.links, np.int64)
    for number in range(flow.tasks):
        for stage in flow.task_at(number).stages:
            if isinstance(stage, Part):
                given = flow.pattern_at(stage.pattern)
                chunk_bytes = given.schedule.chunk_bytes(given.size_bytes)
                for row, chunk in enumerate(given.schedule.chunk.tolist()):
                    total[list(given.schedule.route_of(row))] += chunk_bytes[chunk]
    return total


def test_resources_are_named() -> None:
    flow = Workflow(both_ways(3), [COMPUTE, Resource("memory", 1)])
    assert [flow.resource_name(number) for number in (0, 6, 8, 11)] == [
        flow.topology.link_name(0),
        "compute of 0",
        "compute of 2",
        "memory of 2",
    ]


# The page


def test_the_example_of_the_page_prints_what_it_shows() -> None:
    failed, tried = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 5
    assert failed == 0
