"""Algorithms that know hosts and levels: hierarchical and BlueConnect."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples
from support.oracle import accepts

from weft.algorithms import blueconnect, hierarchical
from weft.algorithms.common import host_groups
from weft.errors import InputError, ScheduleError, UnsupportedError
from weft.schedule import Schedule
from weft.schedule.passes import halves
from weft.topology import Topology, load_topology

UNEVEN = ["hosts:8,4,2", "hosts:1,3,1,5", "hosts:1,1", "hosts:2,1,1,1,3,2,2", "fattree:4,2,1"]
EVEN = ["dgx-h100:2@fabric=flat", "dgx-a100:3@fabric=flat", "fattree:16", "bigraph:3,4", "hosts:5,5,5"]
GRIDS = ["torus:4x4", "mesh:3x2x2", "ring:7", "hypercube:3", "torus:1x5", "torus:2x3x4", "torus:3x3+fail=0-1"]
BLUE = [blueconnect.all_reduce, blueconnect.reduce_scatter, blueconnect.all_gather]


def group_of(topology: Topology) -> np.ndarray:
    member = np.zeros(topology.ranks, int)
    for index, group in enumerate(topology.groups):
        member[list(group)] = index
    return member


def share(schedule: Schedule, rows: np.ndarray) -> float:
    """Times the buffer that some rows move."""
    return float(schedule.weights[schedule.chunk[rows]].sum()) / schedule.denominator


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN])
def test_hierarchical_is_right(spec: str) -> None:
    topology = load_topology(spec)
    for across in ("halving_doubling", "ring"):
        assert accepts(hierarchical.all_reduce(topology, across=across, parts=3))
    for root in range(topology.ranks):
        assert accepts(hierarchical.broadcast(topology, root=root, parts=3))
        assert accepts(hierarchical.reduce(topology, root=root, parts=3))


@pytest.mark.parametrize("spec", [*GRIDS, *EVEN])
def test_blueconnect_is_right(spec: str) -> None:
    topology = load_topology(spec)
    assert all(accepts(make(topology)) for make in BLUE)
    scatter, gather = halves(blueconnect.all_reduce(topology))
    assert accepts(scatter)
    assert accepts(gather)


@examples(40)
@given(clusters(), st.data())
def test_any_cluster_is_served_or_refused_with_a_reason(topology: Topology, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, topology.ranks - 1))
    made = [*BLUE, lambda t: hierarchical.all_reduce(t, parts=2)]
    made += [lambda t: hierarchical.broadcast(t, root=root), lambda t: hierarchical.reduce(t, root=root)]
    even = len({len(group) for group in topology.groups}) == 1
    for make in made:
        if topology.groups and (even or make not in BLUE):
            assert accepts(make(topology))
        else:
            with pytest.raises(UnsupportedError, match="groups"):
                make(topology)


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN])
@pytest.mark.parametrize("parts", [1, 5])
def test_hierarchical_steps(spec: str, parts: int) -> None:
    topology = load_topology(spec)
    groups, longest = len(topology.groups), max(len(group) for group in topology.groups)
    rounds = 2 * (groups - 1).bit_length()
    schedule = hierarchical.all_reduce(topology, parts=parts)
    assert schedule.steps == 2 * (longest - 1) + rounds + parts - 1
    assert schedule.chunks == parts * groups
    ring = hierarchical.all_reduce(topology, across="ring", parts=parts)
    assert ring.steps == 2 * (longest - 1) + 2 * (groups - 1) + parts - 1


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN])
@pytest.mark.parametrize("across", ["halving_doubling", "ring"])
def test_only_leaders_talk_across_groups_and_send_the_least(spec: str, across: str) -> None:
    topology = load_topology(spec)
    schedule = hierarchical.all_reduce(topology, across=across)
    member = group_of(topology)
    crossing = member[schedule.src] != member[schedule.dst]
    groups = len(topology.groups)
    for index in range(groups):
        out = crossing & (member[schedule.src] == index)
        assert len(set(schedule.src[out].tolist())) == 1
        assert share(schedule, out) == pytest.approx(2 * (groups - 1) / groups)
        inside = ~crossing & (member[schedule.src] == index)
        assert share(schedule, inside) == pytest.approx(2 * (len(topology.groups[index]) - 1))


@pytest.mark.parametrize("spec", [*UNEVEN, *EVEN])
def test_chains_of_broadcast_and_reduce_move_the_buffer_once_per_rank(spec: str) -> None:
    topology = load_topology(spec)
    root = topology.ranks - 1
    down, up = hierarchical.broadcast(topology, root=root), hierarchical.reduce(topology, root=root)
    for schedule, end in ((down, down.dst), (up, up.src)):
        shares = np.bincount(end, minlength=topology.ranks) / schedule.chunks
        assert np.array_equal(shares, np.arange(topology.ranks) != root)
        other = schedule.src if end is schedule.dst else schedule.dst
        assert np.bincount(other).max() <= 2 * schedule.chunks


def test_a_rank_with_a_failed_interface_does_not_lead() -> None:
    whole = hierarchical.all_reduce(load_topology("dgx-h100:2@fabric=flat"))
    assert whole.notes == ("leaders: 0, 8",)
    broken = hierarchical.all_reduce(load_topology("dgx-h100:2@fabric=flat+fail=0-s2"))
    assert broken.notes == ("leaders: 1, 8",)
    assert accepts(broken)
    assert hierarchical.broadcast(load_topology("dgx-h100:2@fabric=flat"), root=13).notes == (
        "leaders: 13, 0",
    )


@pytest.mark.parametrize("spec", ["ring:8", "torus:4x4", "switch:8", "fullmesh:6"])
def test_hierarchical_needs_groups(spec: str) -> None:
    for make in (hierarchical.all_reduce, hierarchical.broadcast, hierarchical.reduce):
        with pytest.raises(UnsupportedError, match="has no groups") as caught:
            make(load_topology(spec))
        assert caught.value.instead == "use double_binary_tree or halving_doubling"


def test_bad_parameters_of_hierarchical_are_refused() -> None:
    topology = load_topology("hosts:2,2")
    with pytest.raises(InputError, match="across 'tree' is unknown, expected halving_doubling or ring"):
        hierarchical.all_reduce(topology, across="tree")
    with pytest.raises(InputError, match="parts=0 must be at least 1"):
        hierarchical.all_reduce(topology, parts=0)
    with pytest.raises(ScheduleError, match="root 4"):
        hierarchical.broadcast(topology, root=4)
    with pytest.raises(InputError, match="hierarchical: transfers"):
        hierarchical.all_reduce(topology, parts=1 << 24)


@pytest.mark.parametrize(
    ("spec", "levels"),
    [("torus:2x3x4", [4, 3, 2]), ("ring:7", [7]), ("dgx-h100:3@fabric=flat", [8, 3]), ("fattree:16", [4, 4])],
)
def test_blueconnect_levels_carry_their_closed_form(spec: str, levels: list[int]) -> None:
    topology = load_topology(spec)
    schedule = blueconnect.all_reduce(topology)
    assert schedule.steps == 2 * sum(size - 1 for size in levels)
    stride = np.abs(schedule.src.astype(int) - schedule.dst)
    inner = 1
    for size in levels:
        rows = (stride % inner == 0) & (stride // inner < size)
        assert share(schedule, rows) == pytest.approx(topology.ranks * 2 * (size - 1) / size / inner)
        inner *= size
    assert np.allclose(np.bincount(schedule.src), 2 * (topology.ranks - 1))


def test_blueconnect_on_a_torus_loads_one_direction_of_each_dimension_evenly() -> None:
    schedule = blueconnect.all_reduce(load_topology("torus:4x4"))
    load: dict[int, int] = {}
    for row in range(schedule.transfers):
        (link,) = schedule.route_of(row)
        load[link] = load.get(link, 0) + 1
    assert sorted(set(load.values())) == [2 * 3 * 16 // 4 // 4, 2 * 3 * 16 // 4]
    assert len(load) == 32


def test_blueconnect_sends_one_message_per_rank_and_step() -> None:
    for spec in ("torus:3x4x2", "dgx-h100:3@fabric=flat"):
        schedule = blueconnect.all_reduce(load_topology(spec))
        assert schedule.messages == schedule.ranks * schedule.steps


def test_blueconnect_takes_explicit_levels() -> None:
    topology = load_topology("switch:12")
    for levels in ([3, 2, 2], [12], [2, 6], [1, 12, 1]):
        schedule = blueconnect.all_reduce(topology, levels=levels)
        assert accepts(schedule)
        assert schedule.steps == 2 * sum(size - 1 for size in levels)
        assert accepts(blueconnect.reduce_scatter(topology, levels=levels))
        assert accepts(blueconnect.all_gather(topology, levels=levels))
        assert math.prod(levels) == 12
    with pytest.raises(InputError, match="levels 5 x 2 do not make 12 ranks"):
        blueconnect.all_reduce(topology, levels=[5, 2])
    with pytest.raises(InputError, match="levels=0 must be at least 1"):
        blueconnect.all_reduce(topology, levels=[0, 12])


def test_blueconnect_refuses_what_has_no_even_levels() -> None:
    with pytest.raises(UnsupportedError, match="groups have 8, 4 and 2 ranks") as caught:
        blueconnect.all_reduce(load_topology("hosts:8,4,2"))
    assert caught.value.instead == "use hierarchical, which takes uneven groups"
    with pytest.raises(UnsupportedError, match="has no groups"):
        blueconnect.all_reduce(load_topology("switch:8"))
    with pytest.raises(UnsupportedError, match="has no groups"):
        blueconnect.all_gather(load_topology("torus:3x3+fail=rank:0"))
    with pytest.raises(InputError, match="blueconnect: transfers"):
        blueconnect.all_reduce(load_topology("torus:128x128"))


def test_the_same_input_gives_the_same_schedule() -> None:
    for make in (hierarchical.all_reduce, blueconnect.all_reduce):
        assert (
            make(load_topology("dgx-h100:2@fabric=flat")).digest
            == make(load_topology("dgx-h100:2@fabric=flat")).digest
        )


def test_host_major_order_follows_hosts() -> None:
    assert host_groups.host_major(load_topology("torus:2x2")).tolist() == [0, 1, 2, 3]
    assert host_groups.host_major(load_topology("bigraph:2,2")).tolist() == [0, 1, 2, 3]


def test_a_reduction_has_the_groups_of_its_cluster_where_links_differ_by_direction() -> None:
    """Rank 1 sends to one switch alone, and two send to it."""
    src = [3, 2, 0, 2, 1, 3, 4, 2, 2, 2]
    dst = [2, 3, 2, 0, 3, 1, 2, 4, 0, 1]
    alike = np.ones(len(src), np.int64)
    topology = Topology(
        "one way", 2, 3, np.array(src, np.int32), np.array(dst, np.int32), 10**9 * alike, 1000 * alike
    )
    assert topology.groups
    assert not topology.transpose().groups
    assert accepts(hierarchical.reduce(topology, root=0))
