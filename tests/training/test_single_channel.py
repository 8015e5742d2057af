"""The executor of graphs: order, priorities, channels, and the iteration it gives."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.models import costing, costs, models, uniform

from weft import limits
from weft.errors import InputError, LimitError
from weft.training import AlphaBeta, IterationTimeline, Layer, Linear, fuse, iteration
from weft.training.policies import find
from weft.training.single_channel import run, trace
from weft.training.task_graph import Graph, TaskKind

BYTES = Linear.in_halves(AlphaBeta(0.0, 0.5), AlphaBeta(0.0, 0.5))
"""An all-reduce takes a second for each byte."""


def two_starts(graph: Graph, after: tuple[int, ...] = ()) -> Graph:
    """Add an iteration that begins after these, so that there is something to measure."""
    graph.begin()
    graph.compute("next", 0.0, after, phase="forward")
    return graph


def test_collectives_follow_one_another_in_the_order_of_becoming_ready() -> None:
    graph = Graph()
    graph.begin()
    first = graph.compute("a", 1.0, phase="backward")
    second = graph.compute("b", 1.0, (first,), phase="backward")
    late = graph.collective("all_reduce", 1, (second,))
    early = graph.collective("all_reduce", 5, (first,))
    done = trace(two_starts(graph, (late, early)), BYTES)
    assert (done.began_s[early], done.ended_s[early]) == (1.0, 6.0)
    assert (done.began_s[late], done.ended_s[late]) == (6.0, 7.0)
    assert done.iteration_s == (7.0,)


def test_a_smaller_priority_goes_first_but_breaks_nothing_off() -> None:
    graph = Graph()
    graph.begin()
    first = graph.compute("a", 1.0, phase="backward")
    running = graph.collective("all_reduce", 4, (first,), priority=9)
    second = graph.compute("b", 1.0, (first,), phase="backward")
    patient = graph.collective("all_reduce", 1, (first,), priority=5)
    urgent = graph.collective("all_reduce", 1, (second,), priority=0)
    # All three wait when the first computation ends, but for the urgent one.
    done = trace(two_starts(graph, (running, patient, urgent)), BYTES)
    assert done.began_s[patient] == 1.0
    assert done.began_s[urgent] == 2.0
    assert done.began_s[running] == 3.0


def test_equal_ones_go_in_the_order_of_the_graph() -> None:
    graph = Graph()
    graph.begin()
    tasks = [graph.collective("all_gather", 2) for _ in range(4)]
    graph.compute("a", 0.0, phase="forward")
    done = trace(two_starts(graph, tuple(tasks)), BYTES)
    assert [done.began_s[task] for task in tasks] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("channels", "ends"), [(1, 6.0), (2, 4.0), (3, 3.0)])
def test_as_many_collectives_as_channels_are_under_way(channels: int, ends: float) -> None:
    graph = Graph()
    graph.begin()
    tasks = [graph.collective("all_reduce", size) for size in (1, 2, 3)]
    graph.finish(tasks)
    graph.compute("a", 0.0, phase="forward")
    assert trace(two_starts(graph, tuple(tasks)), BYTES, channels=channels).end_s == ends


def test_delays_need_neither_the_channel_nor_the_computing_unit() -> None:
    graph = Graph()
    graph.begin()
    computing = graph.compute("a", 3.0, phase="forward")
    waiting = [graph.delay("tick", 2.0), graph.delay("tick", 2.0)]
    sending = graph.collective("all_reduce", 1, waiting)
    done = trace(two_starts(graph, (computing, sending)), BYTES)
    assert done.ended_s[sending] == 3.0
    assert done.iteration_s == (3.0,)


def test_every_collective_costs_the_overhead_too() -> None:
    layers = uniform(4, 0.0, 0.0)
    graph = find("wfbp").build(layers)
    assert run(graph, costing(layers, 1.0), overhead_s=0.5).seconds == pytest.approx(3.0)


def happened(timeline: IterationTimeline) -> Counter[tuple[str, int]]:
    """Seconds of each thing that is done, so that what takes none may be at either end of an iteration."""
    taken: Counter[tuple[str, int]] = Counter()
    for span in timeline.spans:
        if span.kind != "wait":
            taken[span.kind, span.number] += span.seconds  # type: ignore[assignment]
    return taken


@given(
    models, costs, st.integers(1, 100_000), st.floats(0.0, 0.1), st.sampled_from(["serial", "wfbp", "dear"])
)
def test_the_policies_of_iteration_come_out_the_same(
    layers: tuple[Layer, ...], prices: Linear, threshold: int, overhead: float, name: str
) -> None:
    queue_all = {"prefetch": None} if name == "dear" else {}
    graph = find(name).build(layers, threshold_bytes=threshold, **queue_all)
    found = run(graph, prices, overhead)
    known = iteration.FORMULAS[name](layers, fuse(layers, threshold), prices, overhead_s=overhead)
    assert found.seconds == pytest.approx(known.seconds, rel=1e-9, abs=1e-9)
    assert found.exposed_s == pytest.approx(known.exposed_s, rel=1e-9, abs=1e-6)
    assert found.communication_s == pytest.approx(known.communication_s, rel=1e-9, abs=1e-6)
    one, other = happened(found), happened(known)
    for what in one | other:
        assert one[what] == pytest.approx(other[what], rel=1e-9, abs=1e-6), what


def test_two_iterations_are_enough_where_there_is_a_barrier() -> None:
    layers = uniform(5, 1.0, 2.0)
    prices = costing(layers, 4.0)
    short, long = (find("wfbp").build(layers, iterations=count) for count in (2, 6))
    assert run(short, prices).seconds == pytest.approx(run(long, prices).seconds)
    kinds = [span.kind for span in run(short, prices).spans]
    assert kinds.count("forward") == kinds.count("backward") == kinds.count("all_reduce") == 5


def test_what_waits_and_for_which_group_is_a_span() -> None:
    layers = (Layer("a", 1, 1.0, 1.0), Layer("b", 3, 1.0, 1.0))
    timeline = run(find("wfbp").build(layers), BYTES)
    assert timeline.seconds == 7.0
    waits = [span for span in timeline.spans if span.kind == "wait"]
    assert timeline.exposed_s == pytest.approx(3.0)
    assert sum(span.seconds for span in waits) == pytest.approx(3.0)
    assert timeline.hidden == pytest.approx(0.25)


def test_costs_without_an_all_to_all_say_so() -> None:
    graph = Graph()
    graph.begin()
    after = graph.collective("all_to_all", 10)
    graph.compute("a", 0.0, phase="forward")
    with pytest.raises(InputError, match="no all_to_all"):
        run(two_starts(graph, (after,)), BYTES)
    known = dataclasses.replace(BYTES, all_to_all=AlphaBeta(0.0, 0.2))
    assert trace(graph, known).iteration_s == (2.0,)


def test_what_cannot_be_is_refused() -> None:
    graph = Graph()
    with pytest.raises(InputError, match="call begin"):
        graph.delay("tick", 1.0)
    graph.begin()
    with pytest.raises(InputError, match="only for earlier ones"):
        graph.compute("a", 1.0, (0,), phase="forward")
    with pytest.raises(InputError, match=r"a: -1\.0 s"):
        graph.compute("a", -1.0, phase="forward")
    with pytest.raises(InputError, match="'gather' is unknown; expected one of all_reduce"):
        graph.collective("gather", 1)
    with pytest.raises(InputError, match="-1 bytes"):
        graph.collective("all_reduce", -1)
    with pytest.raises(LimitError):
        graph.collective("all_reduce", limits.MAX_SIZE_BYTES + 1)
    with pytest.raises(InputError, match="no steady state; build at least 2"):
        run(graph, BYTES)
    graph.compute("a", 1.0, phase="forward")
    with pytest.raises(InputError, match="0 channels"):
        run(two_starts(graph), BYTES, channels=0)


def test_a_task_knows_what_it_is() -> None:
    graph = find("dear").build(uniform(2, 1.0, 2.0))
    assert {task.kind for task in graph.tasks} == set(TaskKind)
    assert len(graph.starts) == 4
    assert [graph.tasks[number].iteration for number in graph.starts] == [0, 1, 2, 3]
    assert all(graph.tasks[number].layer == 0 for number in graph.starts)


@pytest.mark.parametrize("iterations", [6, 7, 8])
def test_the_time_of_an_iteration_is_a_mean_where_iterations_take_turns(iterations: int) -> None:
    graph = Graph()
    before: tuple[int, ...] = ()
    for number in range(iterations):
        graph.begin()
        forward = graph.compute("a", 1.0, before, phase="forward", layer=0)
        # Every other iteration sends four times as much, as where parts of two iterations mix.
        sent = graph.collective("all_reduce", 4000 if number % 2 else 1000, (forward,), group=0)
        before = (sent,)
    graph.finish(before)
    found = run(graph, Linear.ring(2, alpha_s=0.0, beta_s_per_byte=0.001))
    assert sorted(trace(graph, Linear.ring(2, 0.0, 0.001)).iteration_s[-2:]) == pytest.approx([2.0, 5.0])
    assert found.seconds == pytest.approx(3.5)
    assert found.exposed_s == pytest.approx(2.5)
