"""No policy beats the line of its kind on clusters whose hosts differ, where ranks do not keep in step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UnsupportedError
from weft.topology import load_topology
from weft.training import Bounded, Layer
from weft.training.cluster import Cluster
from weft.training.policies import LINES, find
from weft.training.schedules import by_algorithm

ALGORITHMS = ("ring", "double_binary_tree", "multitree", "flexreduce", "hierarchical", "direct")
POLICIES = ("serial", "wfbp", "ddp", "dear", "zero", "bytescheduler")


def over_line(spec: str, algorithm: str, policy: str, layers: tuple[Layer, ...]) -> float:
    """Time of an iteration as a multiple of the line."""
    topology = load_topology(spec)
    cluster = Cluster(topology, by_algorithm(topology, algorithm))
    found = cluster.run(find(policy).build(layers, iterations=10))
    return found.seconds / LINES[find(policy).line].seconds(layers, Bounded(topology))


@pytest.mark.parametrize("policy", ["dear", "zero"])
@pytest.mark.parametrize(
    ("spec", "algorithm"),
    [
        ("hosts:3,1@intra=20GB/s,uplink=2GB/s/10GB/s", "double_binary_tree"),
        ("hosts:4,2@intra=100GB/s,uplink=1GB/s/10GB/s", "flexreduce"),
    ],
)
def test_halves_with_uneven_shards_do_not_beat_the_line_of_dear(
    spec: str, algorithm: str, policy: str
) -> None:
    layers = (Layer("a", 6_000_000, 0.0, 0.0), Layer("b", 7_000_000, 0.0005, 0.0005))
    assert over_line(spec, algorithm, policy, layers) >= 1 - 1e-6


@pytest.mark.parametrize("policy", ["serial", "wfbp", "ddp"])
def test_iterations_that_take_turns_do_not_beat_the_line_on_average(policy: str) -> None:
    layers = tuple(Layer(str(number), 10_000_000, 0.006, 0.012) for number in range(10))
    spec = "hosts:8,4,2@uplink=2.5GB/s/1.2GB/s/0.6GB/s"
    assert over_line(spec, "ring", policy, layers) >= 1 - 1e-6


seconds = st.sampled_from((0.0005, 0.002, 0.01))
layer = st.builds(Layer, st.just("layer"), st.integers(1, 8).map(lambda size: size * 10**6), seconds, seconds)
hosts = st.lists(st.tuples(st.integers(1, 3), st.sampled_from((1, 2, 5, 10))), min_size=2, max_size=3)


@settings(max_examples=10, deadline=None)
@given(hosts, st.lists(layer, min_size=1, max_size=3), st.sampled_from(ALGORITHMS))
def test_no_policy_beats_its_line_on_uneven_clusters(
    given_hosts: list[tuple[int, int]], layers: list[Layer], algorithm: str
) -> None:
    sizes, speeds = zip(*given_hosts, strict=True)
    spec = f"hosts:{','.join(map(str, sizes))}@uplink={'/'.join(f'{speed}GB/s' for speed in speeds)}"
    for policy in POLICIES:
        try:
            found = over_line(spec, algorithm, policy, tuple(layers))
        except UnsupportedError:
            continue  # the algorithm does not apply to these hosts, or has no halves
        assert found >= 1 - 1e-6, (spec, algorithm, policy)
