"""One channel with the simulator's times, and every rank and link at once: the same where ranks are alike."""

from __future__ import annotations

import pytest

from weft.topology import load_topology
from weft.training import Cluster, Layer, Simulated, by_algorithm, policies
from weft.training.single_channel import run

SIZES = (4 << 20, 16 << 20, 1 << 20, 4 << 20, 64 << 10)  # simulated costs are exact at these
LAYERS = [Layer(f"layer{number}", size, 0.002, 0.004) for number, size in enumerate(SIZES)]


WITHOUT_BARRIER = ("bytescheduler", "gradient-first")


@pytest.mark.parametrize("policy", [name for name in policies.POLICIES if name not in WITHOUT_BARRIER])
@pytest.mark.parametrize("spec", ["ring:4@bw=2GB/s,lat=3us", "switch:8@bw=2GB/s,lat=10us"])
def test_collectives_one_by_one_take_as_long_as_alone(spec: str, policy: str) -> None:
    topology = load_topology(spec)
    choose = by_algorithm(topology, "ring")
    costs = Simulated(choose)
    line = policies.find(policy)
    options = {"threshold_bytes": 1} if "threshold_bytes" in line.options else {}
    graph = line.build(LAYERS, costs=costs, **options)
    alone, together = run(graph, costs), Cluster(topology, choose).run(graph)
    assert together.seconds == pytest.approx(alone.seconds, rel=0.01)
    assert together.exposed_s == pytest.approx(alone.exposed_s, rel=0.02)


def test_several_channels_share_links_that_one_would_have_to_itself() -> None:
    topology = load_topology("ring:4@bw=2GB/s,lat=3us")
    choose = by_algorithm(topology, "ring")
    graph = policies.find("wfbp").build(LAYERS)
    one, four = (Cluster(topology, choose, channels=channels).run(graph) for channels in (1, 4))
    assert four.seconds == pytest.approx(one.seconds, rel=0.05)  # the links are the limit, not the channels
    assert run(graph, Simulated(choose), channels=4).seconds < 0.95 * four.seconds
