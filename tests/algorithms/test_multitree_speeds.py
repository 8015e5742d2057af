"""MultiTree where links are not equally fast: what is used, and for how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.trees import check_invariants

import weft
from weft.algorithms import multitree
from weft.algorithms.multitree.growth import grow_trees
from weft.algorithms.multitree.link_speeds import ways_to_use
from weft.schedule.passes import reverse
from weft.topology import Topology, load_topology


def slowed(spec: str, cable: str, percent: int) -> Topology:
    """The topology with one cable, both ways, at a part of its speed."""
    topology = load_topology(spec)
    a, b = (topology.parse_node(node) for node in cable.split("-"))
    bandwidth = topology.bandwidth.copy()
    links = [*topology.links_between(a, b), *topology.links_between(b, a)]
    bandwidth[links] = bandwidth[links] * percent // 100
    return replace(topology, bandwidth=bandwidth)


@pytest.mark.parametrize(
    ("spec", "cable"),
    [("torus:4x4", "0-1"), ("torus:8x8", "0-1"), ("mesh:8x8", "27-28"), ("fattree:16", "s0-s4")],
)
@pytest.mark.parametrize("percent", [4, 25, 50, 75, 90])
def test_a_slow_cable_costs_no_more_than_a_cut_one(spec: str, cable: str, percent: int) -> None:
    topology = slowed(spec, cable, percent)
    gather, scatter = multitree.all_gather(topology), multitree.reduce_scatter(topology)
    check_invariants(gather)
    check_invariants(reverse(scatter))
    weft.verify(multitree.all_reduce(topology))
    cut = multitree.all_gather(load_topology(f"{spec}+fail={cable}"))
    assert (
        weft.simulate(gather, "64MiB", segment_bytes=None).seconds
        <= 1.01 * weft.simulate(cut, "64MiB", segment_bytes=None).seconds
    )


def test_what_is_left_out_is_noted_and_not_used() -> None:
    topology = slowed("torus:8x8@bw=25GB/s", "0-1", 4)
    schedule = multitree.all_reduce(topology)
    assert schedule.notes == ("trees grown by turns", "2 of 256 links left out, slower than 25GB/s")
    slow = np.flatnonzero(topology.bandwidth < topology.bandwidth.max())
    assert not np.isin(schedule.route_links, slow).any()


def test_a_slow_cable_that_is_the_only_one_is_used() -> None:
    topology = slowed("mesh:2x1", "0-1", 4)
    assert multitree.all_gather(topology).steps == 1
    assert len(grow_trees(slowed("mesh:4", "1-2", 4), 1).usage.links) == 6


def test_a_cable_that_is_a_little_slow_is_used_for_what_it_is_worth() -> None:
    usage = grow_trees(slowed("torus:8x8", "0-1", 75), 1).usage
    assert len(usage.links) == 256
    assert np.unique(usage.capacity).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("spec", "capacities"),
    [
        ("torus:4x4", [[1]]),
        ("torus:4x4@bw=10GB/s/30GB/s", [[1, 3]]),
        ("torus:4x4@bw=10GB/s/25GB/s", [[1, 2], [1, 3], [2, 5]]),
        ("ring:4@bw=4GB/s,back=3GB/s", [[1], [1], [2, 3], [3, 4]]),
        ("dgx-h100:2@fabric=flat", [[1, 9]]),
        ("hosts:4,3,1@intra=100GB/s,uplink=25GB/s/10GB/s/5GB/s", [[1, 2, 5, 20]]),
    ],
)
def test_units_of_speed_that_are_tried(spec: str, capacities: list[list[int]]) -> None:
    found = [np.unique(usage.capacity).tolist() for usage in ways_to_use(load_topology(spec))]
    assert found == capacities


def test_many_speeds_are_not_all_tried() -> None:
    topology = load_topology("fullmesh:12")
    speeds = 10**9 + 10**6 * np.arange(topology.links)
    speeds[:2] = 10**7  # a gap
    topology = replace(topology, bandwidth=speeds)
    assert [len(usage.links) for usage in ways_to_use(topology, fine=False)] == [130, 132]
    assert len({len(usage.links) for usage in ways_to_use(topology)}) == 8
