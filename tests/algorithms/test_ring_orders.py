"""Ring orders: cycles of links where there are any, short hops where there are none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples

from weft.algorithms.common.hamiltonian import (
    find_cycle,
    find_long_path,
    grid_cycles,
    may_have_cycle,
)
from weft.algorithms.common.ring_orders import link_seconds, places_behind, ring_order
from weft.topology import Grid, Topology, load_topology

CYCLIC = [
    *(f"torus:{a}x{b}" for a in range(1, 7) for b in range(max(a, 3), 7)),
    *(f"mesh:{a}x{b}" for a in range(2, 7) for b in range(a, 7) if a * b % 2 == 0),
    *("torus:3x3x3", "torus:4x4x4", "torus:2x3x5", "mesh:2x3x3", "mesh:3x3x4", "mesh:5x1x2", "torus:3x5x7"),
    *(
        "torus:2x2",
        "ring:2",
        "ring:3",
        "ring:9",
        "mesh:2x2x2x2",
        "torus:3x3x3x3",
        "torus:32x32",
        "torus:31x33",
    ),
    *(f"hypercube:{d}" for d in range(1, 8)),
    *("fullmesh:2", "fullmesh:3", "fullmesh:16", "fullmesh:9+fail=0-1,1-2,3-4,8-0"),
]
"""Direct networks with a Hamiltonian cycle."""


def hop_lengths(topology: Topology, order: list[int]) -> list[int]:
    there = np.array(order, np.int32)
    return np.diff(topology.routes(there, np.roll(there, -1))[0]).tolist()


@pytest.mark.parametrize("spec", CYCLIC)
@pytest.mark.parametrize("duplex", [False, True])
def test_every_hop_is_one_link_where_a_cycle_exists(spec: str, duplex: bool) -> None:
    topology = load_topology(spec)
    order, note = ring_order(topology, duplex=duplex)
    assert sorted(order) == list(range(topology.ranks))
    assert order[0] == 0
    assert set(hop_lengths(topology, order)) == {1}
    assert note == "ring order: a Hamiltonian cycle, every hop is one link"


@pytest.mark.parametrize(
    "spec", ["mesh:3x3", "mesh:3x5", "mesh:7x5", "mesh:3x3x3", "mesh:3x1x7", "mesh:25x25"]
)
def test_an_odd_mesh_has_one_hop_of_two_links(spec: str) -> None:
    topology = load_topology(spec)
    order, note = ring_order(topology)
    assert sorted(hop_lengths(topology, order)) == [1] * (topology.ranks - 1) + [2]
    assert note == "ring order: no Hamiltonian cycle exists: 1 hop takes 2 links"


@pytest.mark.parametrize("spec", ["mesh:1x9", "mesh:6", "ring:11+fail=3-4", "mesh:700"])
def test_a_line_is_folded(spec: str) -> None:
    topology = load_topology(spec)
    order, note = ring_order(topology)
    assert max(hop_lengths(topology, order)) <= 3
    assert sum(hop_lengths(topology, order)) == 2 * (topology.ranks - 1)
    assert "no Hamiltonian cycle exists" in note


@pytest.mark.parametrize("cable", range(32))
def test_a_torus_dodges_any_failed_cable(cable: int) -> None:
    whole = load_topology("torus:4x4")
    ends = f"{whole.link_src[2 * cable]}-{whole.link_dst[2 * cable]}"
    topology = load_topology(f"torus:4x4+fail={ends}")
    assert set(hop_lengths(topology, ring_order(topology)[0])) == {1}


@pytest.mark.parametrize(
    "spec",
    [
        "torus:4x4+fail=0>1,5>4,7>11,0-4",
        "torus:5x5+fail=0-1,6-7,12-17",
        "torus:8x8+fail=0-1,9-10,18-19,27-28,36-37,45-46",
        "hypercube:4+fail=0-1,2-3",
        "ring:6+fail=2>3",
        "torus:6x6+fail=rank:7,rank:10",
        "mesh:7x7+fail=rank:0",
    ],
)
def test_broken_grids_keep_a_cycle(spec: str) -> None:
    topology = load_topology(spec)
    order, note = ring_order(topology)
    assert set(hop_lengths(topology, order)) == {1}, note


def test_the_faster_turn_is_taken() -> None:
    assert ring_order(load_topology("ring:5@bw=9GB/s,back=1GB/s"))[0] == [0, 1, 2, 3, 4]
    assert ring_order(load_topology("ring:5@bw=1GB/s,back=9GB/s"))[0] == [0, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("spec", "kind", "groups"),
    [
        ("fattree:64", "switch", 8),
        ("dgx-h100:4@fabric=flat", "host", 4),
        ("hosts:8,4,2", "host", 3),
        ("bigraph:4,8", "switch", 8),
    ],
)
def test_groups_stay_together(spec: str, kind: str, groups: int) -> None:
    topology = load_topology(spec)
    order, note = ring_order(topology)
    member = {rank: index for index, group in enumerate(topology.groups) for rank in group}
    leaving = sum(member[a] != member[b] for a, b in zip(order, order[1:] + order[:1], strict=True))
    assert leaving == groups
    assert note == f"ring order: {kind} by {kind}, {groups} of {topology.ranks} hops leave one"


@pytest.mark.parametrize("spec", ["bigraph:4,8", "bigraph:2,16", "bigraph:1,6"])
def test_a_bigraph_alternates_between_its_halves(spec: str) -> None:
    topology = load_topology(spec)
    per_switch = topology.ranks // topology.switches
    order = ring_order(topology)[0]
    upper = [rank // per_switch < topology.switches // 2 for rank in order[::per_switch]]
    assert all(a != b for a, b in zip(upper, upper[1:] + upper[:1], strict=True))


def test_a_fat_tree_loads_each_uplink_once() -> None:
    topology = load_topology("fattree:16")
    assert link_seconds(topology, ring_order(topology)[0]).max() * 25e9 == pytest.approx(1)


@given(clusters(), st.booleans())
@examples(60)
def test_an_order_visits_every_rank_once_and_is_the_same_each_time(topology: Topology, duplex: bool) -> None:
    order, note = ring_order(topology, duplex=duplex)
    assert sorted(order) == list(range(topology.ranks))
    assert (order, note) == ring_order(topology, duplex=duplex)
    if topology.direct and not duplex:
        assert ("a Hamiltonian cycle, every hop" in note) == (set(hop_lengths(topology, order)) == {1})


@given(st.integers(3, 12), st.data())
@examples(60)
def test_a_hidden_directed_cycle_is_found(nodes: int, data: st.DataObject) -> None:
    cycle = data.draw(st.permutations(range(nodes)))
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    links = set(data.draw(st.lists(pairs, max_size=2 * nodes))) | set(
        zip(cycle, cycle[1:] + cycle[:1], strict=True)
    )
    out = [sorted(b for a, b in links if a == node != b) for node in range(nodes)]
    found = find_cycle(out)
    assert found is not None
    assert sorted(found) == list(range(nodes))
    assert all(b in out[a] for a, b in zip(found, found[1:] + found[:1], strict=True))


@given(clusters(max_switches=0))
@examples(60)
def test_a_long_path_follows_links_and_repeats_nothing(topology: Topology) -> None:
    path = find_long_path(topology.neighbours)
    assert len(set(path)) == len(path)
    assert all(b in topology.neighbours[a] and a in topology.neighbours[b] for a, b in pairwise(path))


@pytest.mark.parametrize(
    ("out", "possible"),
    [
        ([[1], [0]], True),
        ([[1], [0, 2], [1]], False),
        ([[1, 2], [0, 2], [0, 1]], True),
        ([[2, 3, 4], [2, 3, 4], [0, 1], [0, 1], [0, 1]], False),
        ([[1], [2], []], False),
    ],
)
def test_simple_reasons_against_a_cycle(out: list[list[int]], possible: bool) -> None:
    assert may_have_cycle(out) == possible


def test_candidate_cycles_of_a_grid_are_permutations() -> None:
    for shape, wrap in (
        ((3, 4), (True, False)),
        ((5, 3), (True, True)),
        ((2, 1, 3), (False, False, True)),
        ((7,), (False,)),
    ):
        for order in grid_cycles(Grid(shape, wrap)):
            assert sorted(order.tolist()) == list(range(int(np.prod(shape))))


def test_places_behind_shows_each_place_once_but_one() -> None:
    places = places_behind(np.arange(5, dtype=np.int32), first=1)
    assert places.shape == (4, 5)
    for rank in range(5):
        assert sorted([rank, *places[:, rank].tolist()]) == list(range(5))
