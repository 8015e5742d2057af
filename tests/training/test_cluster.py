"""Graphs on a whole cluster: closed forms, chunks, channels, jitter and stragglers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft import simulate
from weft.errors import InputError
from weft.topology import load_topology
from weft.training import Layer, policies
from weft.training.cluster import Cluster, ClusterRun, Noise, cut
from weft.training.costs import Simulated
from weft.training.endpoints import ENDPOINTS
from weft.training.schedules import by_algorithm
from weft.training.single_channel import run as run_channel
from weft.training.task_graph import Graph

RING = load_topology("ring:4@bw=1GB/s,lat=1us")
MODEL = (
    Layer("a", 4_000_000, 0.001, 0.002),
    Layer("b", 2_000_000, 0.003, 0.001),
    Layer("c", 1_000_000, 0.002, 0.004),
)


def alone(collective: str, size_bytes: int) -> Graph:
    """One collective between two starts."""
    graph = Graph()
    graph.begin()
    first = graph.compute("first", 0.0, phase="forward")
    sent = graph.collective(collective, size_bytes, (first,))
    graph.begin()
    graph.finish([graph.compute("next", 0.0, (sent,), phase="forward")])
    return graph


def train(noise: Noise = Noise(), policy: str = "wfbp", channels: int | None = 1) -> ClusterRun:  # noqa: B008
    cluster = Cluster(RING, by_algorithm(RING, "ring"), channels=channels, noise=noise)
    return cluster.run(policies.find(policy).build(MODEL, iterations=3))


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_a_collective_alone_takes_what_the_simulator_says(collective: str) -> None:
    choose = by_algorithm(RING, "ring")
    found = Cluster(RING, choose).run(alone(collective, 1_000_000)).seconds
    assert found == simulate(choose(collective, 0)[0], 1_000_000, segment_bytes=None).time_ps / 1e12


@pytest.mark.parametrize("policy", ["serial", "wfbp", "dear", "bytescheduler"])
def test_whole_collectives_one_at_a_time_are_what_the_channel_says(policy: str) -> None:
    graph = policies.find(policy).build(MODEL, iterations=3)
    found = Cluster(RING, by_algorithm(RING, "ring")).run(graph)
    expected = run_channel(graph, Simulated.on(RING, "ring"))
    assert found.seconds == pytest.approx(expected.seconds, rel=1e-3)


def test_an_iteration_is_computing_and_what_is_exposed() -> None:
    found = train()
    assert found.computing_s == pytest.approx(0.013)
    assert found.seconds == pytest.approx(found.computing_s + found.exposed_s)
    assert found.iterations == 3


@pytest.mark.parametrize(
    ("collective", "size", "sizes"),
    [
        ("all_reduce", 0, [0]),
        ("all_reduce", 65536, [65536]),
        ("all_reduce", 65537, [65536, 1]),
        ("all_reduce", 131072, [65536, 65536]),
        ("all_to_all", 131072, [131072]),
        ("all_to_all", 131073, [131072, 1]),
    ],
)
def test_collectives_are_cut_into_chunks(collective: str, size: int, sizes: list[int]) -> None:
    assert cut(ENDPOINTS["ideal"], collective, size, 16) == sizes
    assert cut(ENDPOINTS["free"], collective, size, 16) == [size]


def test_chunks_follow_one_another_and_fill_every_axis() -> None:
    topology = load_topology("ace:4x2x2")
    choose = by_algorithm(topology, "four_phase")
    whole, chunks = (
        Cluster(topology, choose, ENDPOINTS[name]).run(alone("all_reduce", 8 << 20)).seconds
        for name in ("free", "ideal")
    )
    links = (8 << 20) / 200e9
    assert links < chunks < 1.15 * links
    assert whole > 2 * chunks


def test_an_engine_hides_an_all_to_all_behind_its_own_loading() -> None:
    topology = load_topology("ace:4x2x2")
    choose = by_algorithm(topology, "four_phase")
    fine, coarse = (
        Cluster(topology, choose, replace(ENDPOINTS["ace"], message_bytes=message))
        .run(alone("all_to_all", 4 << 20))
        .seconds
        for message in (8 << 10, 1 << 20)
    )
    loading = (4 << 20) / 128e9
    assert coarse - fine > 0.9 * loading


def test_more_channels_let_collectives_contend() -> None:
    one, several = (train(channels=channels, policy="bytescheduler") for channels in (1, None))
    assert one.seconds != several.seconds
    assert one.link_use.mean() == pytest.approx(
        several.link_use.mean() * several.run_ps / one.run_ps
    )  # the same bytes, whoever waits for whom


def test_every_collective_waits_for_its_overhead() -> None:
    cluster = Cluster(RING, by_algorithm(RING, "ring"))
    late = replace(cluster, overhead_s=0.001)
    graph = alone("all_reduce", 1_000_000)
    assert late.run(graph).seconds == pytest.approx(cluster.run(graph).seconds + 0.001)


def test_the_same_seed_gives_the_same_times() -> None:
    first, again, other = (train(Noise(jitter=0.1, seed=seed)) for seed in (7, 7, 8))
    assert np.array_equal(first.ended_ps, again.ended_ps)
    assert not np.array_equal(first.ended_ps, other.ended_ps)


def test_jitter_makes_ranks_differ_and_wait_for_each_other() -> None:
    even, uneven = train(), train(Noise(jitter=0.2, seed=1))
    assert (np.ptp(even.ended_ps[0]), np.ptp(uneven.ended_ps[0]) > 0) == (0, True)
    assert uneven.run_ps > even.run_ps


def test_a_straggler_delays_everyone() -> None:
    even, uneven = train(policy="serial"), train(Noise(stragglers={2: 2.0}), policy="serial")
    # Twice the 13 ms that each iteration computes: all ranks meet in its all-reduce.
    assert uneven.seconds == pytest.approx(even.seconds + 0.013, rel=1e-3)
    last = uneven.ended_ps[-1]
    assert last[0] > even.ended_ps[-1][0] + 0.012e12
    assert uneven.computing_s == pytest.approx(0.013 * 5 / 4)


def test_a_fast_rank_does_not_hasten_the_others() -> None:
    even, uneven = train(policy="serial"), train(Noise(stragglers={1: 0.5}), policy="serial")
    assert uneven.seconds == pytest.approx(even.seconds, rel=1e-3)


@pytest.mark.parametrize(
    "noise",
    [
        Noise(jitter=-0.1),
        Noise(jitter=1.5),
        Noise(jitter=float("nan")),
        Noise(stragglers={4: 2.0}),
        Noise(stragglers={0: 0.0}),
        Noise(stragglers={0: float("inf")}),
    ],
)
def test_noise_that_cannot_be_is_refused(noise: Noise) -> None:
    with pytest.raises(InputError):
        train(noise)


def test_a_graph_without_a_steady_state_is_refused() -> None:
    graph = Graph()
    graph.begin()
    graph.finish([graph.compute("only", 1.0, phase="forward")])
    with pytest.raises(InputError, match="no steady state"):
        Cluster(RING, by_algorithm(RING, "ring")).run(graph)


def test_an_overhead_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="overhead"):
        Cluster(RING, by_algorithm(RING, "ring"), overhead_s=-1.0).run(alone("all_reduce", 1))


def test_resources_say_what_they_are_used_for() -> None:
    use = train(policy="serial").resource_use()
    assert set(use) == {"compute", "links"}
    assert 0 < use["links"] < use["compute"] < 1
