"""The path a network takes by itself: by hand where a rule says which, by property everywhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters

from weft.errors import TopologyError
from weft.topology import Topology, load_topology
from weft.topology.graph import ROUTING_KINDS
from weft.topology.routing import attached_switch


def path(topology: Topology, src: int, dst: int) -> str:
    """Nodes on a route, as text."""
    links = topology.route(src, dst)
    nodes = [topology.node_name(src), *(topology.node_name(int(topology.link_dst[link])) for link in links)]
    return " ".join(nodes)


def all_pairs(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    pairs = list(permutations(range(topology.ranks), 2))
    return np.array([a for a, _ in pairs], np.int32), np.array([b for _, b in pairs], np.int32)


@pytest.mark.parametrize(
    ("spec", "src", "dst", "expected"),
    [
        ("torus:4x4", 0, 6, "0 1 2 6"),
        ("torus:4x4", 6, 0, "6 7 4 0"),
        ("torus:4x4", 0, 3, "0 3"),
        ("torus:4x4", 0, 15, "0 3 15"),
        ("torus:4x4", 5, 5, "5"),
        ("torus:4x4", 0, 2, "0 1 2"),
        ("torus:4x4", 0, 8, "0 4 8"),
        ("ring:5", 0, 3, "0 4 3"),
        ("ring:5", 0, 2, "0 1 2"),
        ("ring:2", 1, 0, "1 0"),
        ("mesh:3x5", 0, 14, "0 1 2 3 4 9 14"),
        ("mesh:3x5", 14, 0, "14 13 12 11 10 5 0"),
        ("mesh:4", 0, 3, "0 1 2 3"),
        ("torus:2x4", 0, 6, "0 1 2 6"),
        ("torus:3x3x3", 0, 26, "0 2 8 26"),
        ("torus:3x3x3", 0, 13, "0 1 4 13"),
        ("hypercube:4", 0, 15, "0 1 3 7 15"),
        ("hypercube:3", 5, 2, "5 4 6 2"),
    ],
)
def test_grids_correct_the_last_coordinate_first_the_shorter_way(
    spec: str, src: int, dst: int, expected: str
) -> None:
    assert path(load_topology(spec), src, dst) == expected


@pytest.mark.parametrize(
    ("spec", "src", "dst", "expected"),
    [
        ("switch:4", 1, 3, "1 s0 3"),
        ("fullmesh:4", 1, 3, "1 3"),
        ("fattree:16", 0, 3, "0 s0 3"),
        ("fattree:16", 0, 4, "0 s0 s4 s1 4"),
        ("fattree:16", 0, 5, "0 s0 s5 s1 5"),
        ("fattree:16", 15, 5, "15 s3 s5 s1 5"),
        ("fattree:16", 5, 15, "5 s1 s7 s3 15"),
        ("hosts:8,4,2", 0, 13, "0 s0 s3 s2 13"),
        ("dgx-h100:2@fabric=flat", 0, 3, "0 s0 3"),
        ("dgx-h100:2@fabric=flat", 0, 11, "0 s2 11"),
        ("dgx-h100:2@fabric=flat,nvlink=1GB/s", 0, 3, "0 s2 3"),
    ],
)
def test_switched_networks_go_up_and_down_spread_by_destination(
    spec: str, src: int, dst: int, expected: str
) -> None:
    assert path(load_topology(spec), src, dst) == expected


def test_a_bigraph_crosses_once_between_halves_and_twice_inside_one() -> None:
    topology = load_topology("bigraph:2,4")
    assert path(topology, 0, 1) == "0 s0 1"
    assert path(topology, 0, 4) == "0 s0 s2 4"
    assert path(topology, 7, 2) == "7 s3 s1 2"
    for src, dst in permutations(range(8), 2):
        a, b = attached_switch(topology, src), attached_switch(topology, dst)
        switches = 1 if a == b else 2 if (a < 2) != (b < 2) else 3
        assert len(topology.route(src, dst)) == switches + 1


def test_inside_one_half_the_number_of_the_target_switch_picks_the_way() -> None:
    topology = load_topology("bigraph:2,4")
    assert path(topology, 0, 2) == "0 s0 s3 s1 2"
    assert path(topology, 1, 3) == "1 s0 s3 s1 3"
    assert path(topology, 2, 0) == "2 s1 s2 s0 0"
    assert path(topology, 4, 6) == "4 s2 s1 s3 6"
    wide = load_topology("bigraph:4,8")
    for src, dst in permutations(range(16), 2):
        a, b = attached_switch(wide, src), attached_switch(wide, dst)
        if a != b:
            assert path(wide, src, dst).split()[2] == f"s{4 + b % 4}"


def test_a_fat_tree_spreads_destinations_evenly_over_spines() -> None:
    topology = load_topology("fattree:64")
    used: Counter[str] = Counter()
    for dst in range(8, 64):
        used[path(topology, 0, dst).split()[2]] += 1
    assert set(used.values()) == {7}
    assert len(used) == 8


def test_equal_parallel_links_are_shared_by_destination_and_a_faster_one_wins() -> None:
    topology = load_topology("switch:4@links=2")
    assert {topology.link_name(topology.route(0, dst)[0]) for dst in (1, 2, 3)} == {"0->s0#0", "0->s0#1"}
    speeds = np.array([10, 10, 40, 10], np.int64) * 10**9
    uneven = Topology(
        "uneven", 2, 0, np.array([0, 1, 0, 1]), np.array([1, 0, 1, 0]), speeds, np.zeros(4, np.int64)
    )
    assert uneven.route(0, 1) == (2,)


def test_a_pair_whose_path_broke_takes_a_shortest_detour_and_the_others_stay() -> None:
    whole, broken = load_topology("torus:4x4"), load_topology("torus:4x4+fail=0-1")
    assert path(broken, 0, 1) in ("0 3 2 1", "0 4 5 1", "0 12 13 1")
    assert path(broken, 1, 0).count(" ") == 3
    for src, dst in permutations(range(16), 2):
        before, after = path(whole, src, dst), path(broken, src, dst)
        steps = set(pairwise(before.split()))
        if not steps & {("0", "1"), ("1", "0")}:
            assert before == after


def test_a_link_that_failed_one_way_still_works_the_other() -> None:
    broken = load_topology("torus:4x4+fail=0>1")
    assert path(broken, 1, 0) == "1 0"
    assert path(broken, 0, 1).count(" ") == 3


def test_hashed_routes_depend_on_the_seed_and_on_nothing_else() -> None:
    src, dst = all_pairs(load_topology("fattree:16"))

    def links(seed: int) -> list[int]:
        topology = load_topology(f"fattree:16@routing=ecmp,seed={seed}")
        return topology.routes(src, dst)[1].tolist()

    assert links(1) == links(1)
    assert links(1) != links(2)
    assert load_topology("fattree:16@routing=ecmp") != load_topology("fattree:16")
    assert load_topology("fattree:16").with_routing("ecmp", 1).routes(src, dst)[1].tolist() == links(1)


def test_hashed_routes_collide_where_the_others_do_not() -> None:
    topology = load_topology("fattree:64@routing=ecmp,seed=3")
    used = Counter(path(topology, src, 63).split()[2] for src in range(8))
    assert len(used) > 1
    assert max(used.values()) > 1


def test_an_unbroken_grid_and_an_irregular_graph_agree_on_lengths() -> None:
    grid = load_topology("torus:4x5")
    src, dst = all_pairs(grid)
    lengths = np.diff(grid.routes(src, dst)[0])
    assert lengths.tolist() == np.diff(grid.with_routing("shortest").routes(src, dst)[0]).tolist()


def test_many_routes_at_once_are_the_single_ones() -> None:
    for spec in ("torus:3x3", "torus:3x3+fail=0-1,4-5", "bigraph:2,4", "hosts:3,2"):
        topology = load_topology(spec)
        src, dst = all_pairs(topology)
        offsets, links = topology.routes(src, dst)
        for index, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            assert tuple(links[offsets[index] : offsets[index + 1]].tolist()) == topology.route(a, b)


@pytest.mark.parametrize(("src", "dst"), [(-1, 0), (0, 16), (16, 0), (0, 24)])
def test_routes_run_between_ranks(src: int, dst: int) -> None:
    with pytest.raises(TopologyError, match=r"routes run between ranks 0\.\.15"):
        load_topology("fattree:16").route(src, dst)


def distances(topology: Topology, target: int) -> dict[int, tuple[int, int]]:
    """For each node: fewest links to the target, and the speed of the widest path with so few."""
    found = {target: (0, 1 << 62)}
    frontier = [target]
    ends = list(
        zip(topology.link_src.tolist(), topology.link_dst.tolist(), topology.bandwidth.tolist(), strict=True)
    )
    while frontier:
        wider: dict[int, int] = {}
        for src, dst, speed in ends:
            if dst in frontier and src not in found:
                wider[src] = max(wider.get(src, 0), min(speed, found[dst][1]))
        steps = found[frontier[0]][0] + 1
        found.update({node: (steps, width) for node, width in wider.items()})
        frontier = list(wider)
    return found


@given(clusters(max_ranks=8), st.sampled_from(ROUTING_KINDS), st.integers(0, 5))
def test_every_route_is_connected_shortest_and_widest(topology: Topology, kind: str, seed: int) -> None:
    topology = topology.with_routing(kind, seed)
    src, dst = all_pairs(topology)
    offsets, links = topology.routes(src, dst)
    towards = [distances(topology, rank) for rank in range(topology.ranks)]
    for index, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        route = links[offsets[index] : offsets[index + 1]]
        assert int(topology.link_src[route[0]]) == a
        assert int(topology.link_dst[route[-1]]) == b
        assert topology.link_dst[route[:-1]].tolist() == topology.link_src[route[1:]].tolist()
        assert (len(route), int(topology.bandwidth[route].min())) == towards[b][a]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda shape: 2 <= np.prod(shape) <= 60),
    st.booleans(),
    st.data(),
)
def test_routes_on_grids_are_as_short_as_can_be(shape: list[int], wrap: bool, data: st.DataObject) -> None:
    topology = load_topology(f"{'torus' if wrap else 'mesh'}:{'x'.join(map(str, shape))}")
    assert topology.grid is not None
    src = data.draw(st.integers(0, topology.ranks - 1))
    dst = data.draw(st.integers(0, topology.ranks - 1))
    route = topology.route(src, dst)
    here, there = topology.grid.coordinates(src), topology.grid.coordinates(dst)
    expected = 0
    for a, b, size in zip(here, there, shape, strict=True):
        away = abs(a - b)
        expected += min(away, size - away) if wrap else away
    assert len(route) == expected
