"""Computing that is slower only while its rank sends: on one channel, and on a whole cluster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.models import costs, models

from weft.topology import load_topology
from weft.training import (
    Cluster,
    Layer,
    Linear,
    Simulated,
    by_algorithm,
    find_device,
    find_endpoint,
    policies,
    train,
)
from weft.training.iteration import IterationTimeline
from weft.training.layers import slow_down
from weft.training.single_channel import run
from weft.training.task_graph import Graph
from weft.training.while_sending import stretch

BYTES = Linear.ring(2, alpha_s=0.0, beta_s_per_byte=1.0)
"""On two ranks an all-reduce takes a second for each byte."""


def slowing(layers: tuple[Layer, ...], factor: float) -> dict[tuple[str, int], float]:
    return {(phase, index): factor for phase in ("forward", "backward") for index in range(len(layers))}


def timed(
    layers: tuple[Layer, ...], prices: Linear, factor: float, policy: str = "wfbp"
) -> IterationTimeline:
    return run(policies.find(policy).build(layers), prices, slowdowns=slowing(layers, factor))


def test_only_what_is_computed_beside_a_collective_takes_longer() -> None:
    # Backward of b ends at 2, and its 3 bytes are under way until 5. Backward of a needs 4 seconds: 3 seconds
    # at half the pace do 1.5 of them, and 2.5 are left. Its own byte follows at 7.5.
    layers = (Layer("a", 1, 0.0, 4.0), Layer("b", 3, 0.0, 2.0))
    assert timed(layers, BYTES, 2.0).seconds == pytest.approx(8.5)
    assert timed(layers, BYTES, 1.0).seconds == pytest.approx(7.0)


def test_a_collective_that_begins_amid_a_computation_slows_the_rest_of_it() -> None:
    graph = Graph()
    for _ in range(2):
        graph.begin()
        first = graph.compute("long", 4.0, graph.end(), phase="forward", layer=0)
        waited = graph.delay("wait", 1.0, graph.end())
        sent = graph.collective("all_reduce", 1, (waited,))
        graph.finish([first, sent])
    # One second free, one second at a third of the pace, then two and two thirds that are left.
    found = run(graph, BYTES, slowdowns={("forward", 0): 3.0})
    assert found.seconds == pytest.approx(1 + 1 + (4 - 1 - 1 / 3))


@given(models, costs, st.floats(1.0, 4.0))
def test_while_sending_lies_between_never_and_always(
    layers: tuple[Layer, ...], prices: Linear, factor: float
) -> None:
    # With a barrier at the step one iteration does not reach into the next.
    never = timed(layers, prices, 1.0).seconds
    always = run(
        policies.find("wfbp").build([slow_down(layer, factor, factor) for layer in layers]), prices
    ).seconds
    found = timed(layers, prices, factor).seconds
    assert never * (1 - 1e-9) - 1e-9 <= found <= always * (1 + 1e-9) + 1e-9


@given(models, costs, st.floats(1.0, 4.0))
def test_who_sends_after_computing_is_not_slowed(
    layers: tuple[Layer, ...], prices: Linear, factor: float
) -> None:
    found = timed(layers, prices, factor, "serial").seconds
    assert found == pytest.approx(timed(layers, prices, 1.0, "serial").seconds)


def test_spans_that_overlap_slow_once_and_gaps_do_not() -> None:
    graph = Graph()
    graph.begin()
    graph.compute("work", 1.0, phase="forward", layer=0)
    for _ in range(3):
        graph.collective("all_reduce", 1)
    began = np.array([[10], [0], [12], [20]])
    ended = np.array([[40], [14], [16], [22]])
    found = stretch(graph, began, ended, {0: np.array([10])}, {("forward", 0): 2.0})
    # From 10 to 16 at half the pace 3 are done, until 20 another 4, until 22 another 1, and 2 are left.
    assert found[0].tolist() == [14]


LAYERS = tuple(Layer(f"layer{number}", 4 << 20, 0.002, 0.004) for number in range(4))


def test_a_cluster_agrees_with_one_channel() -> None:
    topology = load_topology("ring:4@bw=2GB/s,lat=3us")
    choose = by_algorithm(topology, "ring")
    graph = policies.find("wfbp").build(LAYERS)
    slowdowns = slowing(LAYERS, 1.7)
    alone = run(graph, Simulated(choose), slowdowns=slowdowns)
    together = Cluster(topology, choose).run(graph, slowdowns=slowdowns)
    assert together.seconds == pytest.approx(alone.seconds, rel=0.002)
    assert together.seconds > 1.05 * Cluster(topology, choose).run(graph).seconds


def test_factors_of_one_change_nothing_on_a_cluster() -> None:
    topology = load_topology("ring:4@bw=2GB/s,lat=3us")
    cluster = Cluster(topology, by_algorithm(topology, "ring"))
    graph = policies.find("wfbp").build(LAYERS)
    assert cluster.run(graph, slowdowns=slowing(LAYERS, 1.0)).seconds == cluster.run(graph).seconds


def test_a_job_with_an_endpoint_that_takes_only_while_sending_is_faster() -> None:
    npu = find_device("ace-npu")
    seconds = [
        train(
            "dlrm-published",
            "ace:2x2x2",
            device=npu,
            endpoint=find_endpoint(name),
            algorithm="four_phase",
            policy="gradient-first",
            iterations=4,
        ).seconds
        for name in ("ideal", "comm-opt:while-sending", "comm-opt")
    ]
    assert seconds[1] < seconds[2]
    assert seconds[0] <= seconds[1]
