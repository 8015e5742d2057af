"""Clusters after something broke."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.errors import DisconnectedError, TopologyError
from weft.topology import Topology, load_topology
from weft.topology.faults import apply_faults
from weft.topology.toml_file import format_toml


def between(topology: Topology, a: str, b: str) -> tuple[int, int]:
    src, dst = topology.parse_node(a), topology.parse_node(b)
    return len(topology.links_between(src, dst)), len(topology.links_between(dst, src))


def test_a_failed_cable_loses_both_directions() -> None:
    topology = load_topology("torus:4x4+fail=3-7")
    assert topology.links == 62
    assert between(topology, "3", "7") == (0, 0)
    assert topology.name == "torus:4x4+fail=3-7"


def test_an_arrow_loses_one_direction() -> None:
    topology = load_topology("torus:4x4+fail=3>7")
    assert topology.links == 63
    assert between(topology, "3", "7") == (0, 1)


def test_several_faults_in_one_or_in_several_suffixes() -> None:
    together = load_topology("torus:4x4+fail=0-1,1-2")
    apart = load_topology("torus:4x4+fail=0-1+fail=1-2")
    assert together == apart
    assert together.links == 60


def test_all_parallel_links_fail_unless_a_number_is_given() -> None:
    assert between(load_topology("ring:4@links=3+fail=0-1"), "0", "1") == (0, 0)
    assert between(load_topology("ring:4@links=3+fail=0-1*1"), "0", "1") == (2, 2)
    assert between(load_topology("ring:4@links=3+fail=0>1*2"), "0", "1") == (1, 3)
    assert between(load_topology("ring:4@links=3+fail=0-1*3"), "0", "1") == (0, 0)
    assert between(load_topology("ring:4@links=3+fail=0-1*1,0-1*1"), "0", "1") == (1, 1)


def test_links_of_switches_fail_too() -> None:
    topology = load_topology("fattree:16+fail=s0-s4+fail=s1>s5")
    assert between(topology, "s0", "s4") == (0, 0)
    assert between(topology, "s1", "s5") == (0, 1)


def test_a_switch_link_that_only_leaves_spare_paths_keeps_everyone_connected() -> None:
    topology = load_topology("fattree:16+fail=s0-s4")
    assert topology.links == 62
    assert [topology.link_name(link) for link in topology.route(0, 4)][1] != "s0->s4"


def test_a_failed_rank_takes_its_links_and_the_others_close_ranks() -> None:
    topology = load_topology("ring:5+fail=rank:2")
    assert topology.ranks == 4
    assert topology.rank_labels == (0, 1, 3, 4)
    assert topology.links == 6
    assert topology.grid is None
    assert topology.routing.kind == "shortest"
    assert topology.neighbours == ((1, 3), (0,), (3,), (0, 2))


def test_failed_ranks_use_the_old_numbers() -> None:
    topology = load_topology("torus:4x4+fail=rank:5,rank:6,0-4")
    assert topology.ranks == 14
    assert topology.rank_labels == (0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    assert between(topology, "0", "4") == (0, 0)


def test_a_cable_and_the_rank_behind_it_may_both_fail() -> None:
    topology = load_topology("switch:4+fail=3-s0+fail=rank:3")
    assert (topology.ranks, topology.links, topology.rank_labels) == (3, 6, (0, 1, 2))
    assert load_topology("mesh:4+fail=2-3,rank:3").ranks == 3


def test_failures_of_failures_keep_the_first_numbers() -> None:
    once = apply_faults(load_topology("fullmesh:5"), ["rank:0"])
    twice = apply_faults(once, ["rank:0"])
    assert twice.rank_labels == (2, 3, 4)


def test_a_failed_rank_leaves_its_host() -> None:
    topology = load_topology("hosts:2,2,1+fail=rank:1+fail=rank:4")
    assert topology.hosts == ((0,), (1, 2))
    assert topology.switches == 4


def test_addresses_move_with_their_links() -> None:
    whole = Topology.from_links(
        "lab",
        3,
        0,
        [(0, 1), (1, 2), (2, 0)],
        bandwidth="1GB/s",
        latency="1us",
        addresses=((0, "a", "b"), (2, "c", "d"), (5, "e", "f")),
    )
    cut = apply_faults(whole, ["0-1"])
    assert cut.addresses == ((0, "c", "d"), (3, "e", "f"))
    gone = apply_faults(whole, ["rank:0"])
    assert gone.addresses == ((0, "c", "d"),)


def test_no_fault_is_no_change() -> None:
    whole = load_topology("ring:4")
    assert apply_faults(whole, []) is whole


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ring:4+fail=0-1,2-3", "rank 0 cannot reach rank 1"),
        ("mesh:4+fail=1-2", "rank 0 cannot reach rank 2"),
        ("mesh:4+fail=1>2", "rank 0 cannot reach rank 2"),
        ("mesh:4+fail=2>1", "rank 2 cannot reach rank 0"),
        (
            "switch:4+fail=3-s0",
            "rank 0 cannot reach rank 3; add links, or .* with \\+fail=rank:3",
        ),
        ("switch:4+fail=0-s0", "rank 0 cannot reach rank 1; add links, or .* with \\+fail=rank:0"),
        ("mesh:4+fail=rank:1", "rank 0 cannot reach rank 1"),
    ],
)
def test_ranks_that_cannot_reach_each_other_are_named(spec: str, message: str) -> None:
    with pytest.raises(DisconnectedError, match=message):
        load_topology(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ring:4+fail=0-2", "fault '0-2': there is no link 0->2"),
        ("ring:4+fail=0-9", "there is no node '9'; it has ranks 0..3"),
        ("ring:4+fail=s0-1", "there is no node 's0'; it has ranks 0..3"),
        ("switch:4+fail=s1-1", "there is no node 's1'; it has ranks 0..3 and switches s0..s0"),
        ("ring:4+fail=rank:4", "there is no node '4'"),
        ("ring:4+fail=rank:x", "fault 'rank:x' must be A-B, A>B, rank:R or a name"),
        ("ring:4@links=3+fail=0-1*0", "3 of its links are left, so 0 cannot fail"),
        ("ring:4@links=3+fail=0-1*9", "3 of its links are left, so 9 cannot fail"),
        ("ring:4@links=3+fail=0-1*2,0-1*2", "one of its links is left, so 2 cannot fail"),
        ("ring:4+fail=0-1*x", "there is no node '1.x'"),
        ("ring:4+fail=0,1", "must be A-B, A>B, rank:R or a name"),
        ("ring:4+fail=0-1,", "fault '' must be"),
        ("ring:2+fail=rank:0", "a cluster of 1 rank has nothing to reduce"),
    ],
)
def test_a_fault_that_cannot_be_is_an_error(spec: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        load_topology(spec)


def test_a_file_may_have_faults_too_and_its_name_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "asym.toml"
    path.write_text(format_toml(replace(load_topology("ring:6"), name="asym")), "utf-8")
    found = load_topology(f"{path}+fail=rank:4")
    assert (found.name, found.ranks) == ("asym+fail=rank:4", 5)
    assert found == load_topology("ring:6+fail=rank:4")
    assert load_topology(f"{path}+fail=0>1,1>2").name == "asym+fail=0>1,1>2"
    with pytest.raises(TopologyError, match=r"asym\+fail=0-2: fault '0-2': there is no link"):
        load_topology(f"{path}+fail=0-2")


def test_link_columns_stay_read_only() -> None:
    for topology in (load_topology("ring:4"), load_topology("ring:4+fail=0>1")):
        with pytest.raises(ValueError, match="read-only"):
            topology.bandwidth[0] = np.int64(1)
