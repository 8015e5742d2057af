"""The two engines of workflows agree to the picosecond, on workflows that nobody would write."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples
from support.random_schedules import LATENCIES_PS, SPEEDS, schedules, topologies
from support.reference.workflow_engine import run_reference

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.errors import SimulationError, UnsupportedError
from weft.schedule import Schedule
from weft.simulation import LocalWork, Part, Passage, Resource, Workflow
from weft.topology import Topology

RATIOS = (0, 1, 1, 2, Fraction(1, 2), Fraction(3, 2), Fraction(1, 3), Fraction(7, 1000))


def check_agreement(flow: Workflow) -> None:
    fast, slow = flow.run(), run_reference(flow)
    assert fast.began_ps.tolist() == slow.began_ps
    assert fast.ended_ps.tolist() == slow.ended_ps
    assert fast.busy_ps.tolist() == slow.busy_ps
    assert fast.time_ps == slow.time_ps


@st.composite
def known_schedules(draw: st.DrawFn, topology: Topology) -> Schedule:
    """What an algorithm makes of a network that it may never have met."""
    names = ["ring", "direct", "double_binary_tree", "halving_doubling", "multitree"]
    found = ALGORITHMS[draw(st.sampled_from(names))]
    try:
        return found.build(topology, draw(st.sampled_from(found.collectives)), root=0)
    except UnsupportedError:
        return ALGORITHMS["ring"].build(topology, "all_reduce", root=0)


@st.composite
def patterns(draw: st.DrawFn, flow: Workflow) -> int:
    """Cut a collective anywhere, and lead it past anything."""
    schedule = draw(st.one_of(schedules(flow.topology), known_schedules(flow.topology)))
    size_bytes = draw(st.one_of(st.integers(0, 100), st.integers(0, 10**6)))
    cuts = draw(st.one_of(st.none(), st.integers(1, 5)))
    steps = st.integers(1, max(1, schedule.steps - 1))
    parts = draw(st.sets(steps, max_size=2)) if schedule.steps > 1 else ()
    numbers = st.integers(0, max(0, len(flow.resources) - 1))
    ratios = st.sampled_from(RATIOS)
    passages = st.lists(st.builds(Passage, numbers, ratios, ratios), max_size=2 if flow.resources else 0)
    return flow.pattern(
        schedule,
        size_bytes,
        segment_bytes=None if cuts is None else max(1, size_bytes // cuts),
        parts=sorted(parts),
        before=draw(passages),
        after=draw(passages),
    )


def parts_of(flow: Workflow, pattern: int) -> range:
    return range(len(flow.pattern_at(pattern).parts) + 1)


@st.composite
def works(draw: st.DrawFn, flow: Workflow) -> LocalWork:
    resource = draw(st.sampled_from([None, *range(len(flow.resources))]))
    amounts = st.one_of(st.integers(0, 5), st.sampled_from([10, 100, 1000]), st.integers(0, 10**6))
    if draw(st.booleans()):
        return LocalWork(resource, draw(amounts))
    each = st.lists(amounts, min_size=flow.topology.ranks, max_size=flow.topology.ranks)
    return LocalWork(resource, np.array(draw(each), np.int64))


@st.composite
def workflows(draw: st.DrawFn, *, orderly: bool = False) -> Workflow:
    """Tasks of any stages; orderly ones go through all parts of a collective, one after the other."""
    topology = draw(topologies())
    resource = st.builds(
        Resource, st.just("engine"), st.sampled_from(SPEEDS), st.sampled_from(LATENCIES_PS[:5])
    )
    flow = Workflow(
        topology, draw(st.lists(resource, max_size=3)), draw(st.lists(st.integers(1, 2), max_size=3))
    )
    for _ in range(draw(st.integers(0, 3), label="patterns")):
        draw(patterns(flow))
    lifo = draw(st.booleans(), label="last first")
    for number in range(draw(st.integers(1, 8), label="tasks")):
        stages: list[Part | LocalWork] = []
        if flow.patterns and draw(st.booleans()):
            pattern = draw(st.sampled_from(range(flow.patterns)))
            order = list(parts_of(flow, pattern))
            if not orderly and draw(st.integers(0, 9)) == 0:
                order = draw(st.permutations(order))[: draw(st.integers(0, len(order)))]
            stages += [Part(pattern, part) for part in order]
        for work in draw(st.lists(works(flow), max_size=3)):
            stages.insert(draw(st.integers(0, len(stages))), work)
        held = draw(st.permutations(range(len(flow.pools))))
        stages = [
            type(stage)(*fields(stage), held.pop() if held and draw(st.integers(0, 3)) == 0 else None)
            for stage in stages
        ]
        flow.task(
            f"task {number}",
            stages,
            after=draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else (),
            priority=-number if lifo else draw(st.integers(-1, 1)),
            pool=held.pop() if held and draw(st.booleans()) else None,
        )
    return flow


def fields(stage: Part | LocalWork) -> tuple[object, object]:
    return (stage.pattern, stage.part) if isinstance(stage, Part) else (stage.resource, stage.amount)


@examples(250)
@given(workflows())
def test_both_engines_agree_on_any_workflow(flow: Workflow) -> None:
    event(f"{len(flow.pools)} pools, {flow.patterns} patterns")
    try:
        flow.run()
    except SimulationError as stuck:
        event("stuck")
        with pytest.raises(SimulationError, match=f"^{re.escape(str(stuck))}$"):
            run_reference(flow)
    else:
        check_agreement(flow)


@examples(150)
@given(workflows(orderly=True))
def test_a_workflow_in_order_always_ends(flow: Workflow) -> None:
    assert (flow.run().ended_ps >= 0).all()


@pytest.mark.parametrize("spec", ["ring:5@bw=1GB/s", "torus:2x4@lat=0ns", "hosts:3,1,2", "mesh:2x3"])
def test_both_engines_agree_on_a_few_iterations_of_training(spec: str) -> None:
    """Endpoints that halve, buffers for two, last first, and ranks of different speed."""
    topology = weft.load_topology(spec)
    ranks = np.arange(topology.ranks)
    flow = Workflow(topology, [Resource("compute", 10**12), Resource("memory", 3 * 10**9, 7)], [2, 1])
    sums = [
        flow.pattern(
            ALGORITHMS[name].build(topology, "all_reduce", root=0),
            20_011,
            segment_bytes=segment_bytes,
            before=[Passage(1, 1, 2)],
            after=[Passage(1, Fraction(1, 2), 3)],
        )
        for name, segment_bytes in (("ring", 999), ("direct", None), ("multitree", 1500))
    ]
    last: list[int] = []
    for iteration in range(3):
        for layer in range(6):
            jitter = 10**6 * ((ranks * 7 + layer * 3 + iteration) % 5)
            last = [flow.task("backward", [LocalWork(0, 10**6 + jitter)], after=last)]
            stages = [LocalWork(None, 10 * ranks), Part(sums[layer % 3], pool=1), LocalWork(1, 500)]
            flow.task("all-reduce", stages, after=last, priority=-layer, pool=0)
        last = list(range(flow.tasks))
    check_agreement(flow)
