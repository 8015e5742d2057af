"""Every kind of spec: how many links, of which speed, and where they go."""

from __future__ import annotations

import contextlib
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import LimitError, TopologyError, UnitError, WeftError
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.topology.kinds import KINDS
from weft.topology.placements import draw_placement
from weft.topology.spec_parser import is_spec

GB = 10**9


def cables(topology: Topology) -> Counter[tuple[str, str]]:
    """Directed links by the names of their ends."""
    ends = zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
    return Counter((topology.node_name(a), topology.node_name(b)) for a, b in ends)


def speeds(topology: Topology) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for link in range(topology.links):
        a, b = topology.link_name(link).split("#")[0].split("->")
        found[a, b] = found.get((a, b), 0) + int(topology.bandwidth[link])
    return found


@pytest.mark.parametrize(
    ("spec", "ranks", "switches", "links"),
    [
        ("ring:8", 8, 0, 16),
        ("ring:2", 2, 0, 2),
        ("ring:2@wrap2=double", 2, 0, 4),
        ("ring:3", 3, 0, 6),
        ("mesh:4x4", 16, 0, 48),
        ("mesh:8", 8, 0, 14),
        ("mesh:1x5", 5, 0, 8),
        ("torus:4x4", 16, 0, 64),
        ("torus:8x8", 64, 0, 256),
        ("torus:4x4x4", 64, 0, 384),
        ("torus:2x4", 8, 0, 24),
        ("torus:2x4@wrap2=double", 8, 0, 32),
        ("torus:2x2", 4, 0, 8),
        ("torus:4x4@links=2", 16, 0, 128),
        ("hypercube:6", 64, 0, 384),
        ("hypercube:1", 2, 0, 2),
        ("fullmesh:8", 8, 0, 56),
        ("fullmesh:8@links=3", 8, 0, 168),
        ("switch:8", 8, 1, 16),
        ("switch:8@links=2", 8, 1, 32),
        ("fattree:4,2,3", 12, 6, 40),
        ("fattree:64", 64, 16, 256),
        ("fattree:16", 16, 8, 64),
        ("fattree:4,2,3@uplinks=2", 12, 6, 56),
        ("bigraph:2,4", 8, 4, 24),
        ("bigraph:4,8", 32, 8, 96),
        ("bigraph:4,8@uplinks=2", 32, 8, 128),
        ("dragonfly:4,2,2", 16, 8, 52),
        ("dragonfly:9,4,2", 72, 36, 324),
        ("dgx-a100:1", 8, 1, 16),
        ("dgx-a100:2@fabric=flat", 16, 3, 64),
        ("dgx-h100:4@fabric=flat", 32, 5, 128),
        ("hosts:8,4,2", 14, 4, 34),
        ("hosts:8,8,8@racks=2/1", 24, 6, 58),
        ("hosts:8,8,8@racks=1", 24, 7, 60),
        ("hosts:3x4", 12, 4, 30),
        ("hosts:2x8,4", 20, 4, 46),
        ("hosts:4,2,1@nic=25GB/s", 7, 3, 26),
        ("cloud:4x8,32@taken=0", 32, 5, 72),
        ("cloud:4x8,32@taken=0,racks=2", 32, 7, 76),
    ],
)
def test_a_spec_has_as_many_ranks_switches_and_links(
    spec: str, ranks: int, switches: int, links: int
) -> None:
    topology = load_topology(spec)
    assert (topology.ranks, topology.switches, topology.links) == (ranks, switches, links)
    assert topology.name == spec
    assert set(topology.bandwidth[topology.link_src < ranks]) >= {int(topology.bandwidth[0])}


def test_defaults_are_25_gigabytes_and_a_microsecond() -> None:
    topology = load_topology("ring:8")
    assert set(topology.bandwidth.tolist()) == {25 * GB}
    assert set(topology.latency_ps.tolist()) == {10**6}


def test_every_cable_is_drawn_forward_and_back() -> None:
    for kind, shape in (("torus", "3x4"), ("fattree", "16"), ("bigraph", "2,4"), ("hosts", "3,2")):
        topology = load_topology(f"{kind}:{shape}")
        assert topology.link_src[0::2].tolist() == topology.link_dst[1::2].tolist()
        assert topology.link_dst[0::2].tolist() == topology.link_src[1::2].tolist()


def test_a_torus_numbers_ranks_row_by_row() -> None:
    topology = load_topology("torus:3x4")
    assert topology.grid is not None
    assert topology.grid.shape == (3, 4)
    assert topology.neighbours[0] == (1, 3, 4, 8)
    assert topology.neighbours[6] == (2, 5, 7, 10)
    assert topology.grid.coordinates(6) == (1, 2)
    assert topology.grid.rank((1, 2)) == 6
    assert topology.grid.rank((4, -2)) == 6
    assert all(len(near) == 4 for near in topology.neighbours)


def test_a_mesh_does_not_close() -> None:
    topology = load_topology("mesh:3x5")
    assert topology.grid is not None
    assert topology.grid.wrap == (False, False)
    assert Counter(len(near) for near in topology.neighbours) == {2: 4, 3: 8, 4: 3}


def test_a_torus_of_size_two_has_one_cable_unless_told() -> None:
    single, double = load_topology("torus:2x4"), load_topology("torus:2x4@wrap2=double")
    assert cables(single)["0", "4"] == 1
    assert cables(double)["0", "4"] == 2
    assert single.grid is not None
    assert double.grid is not None
    assert single.grid.wrap == (False, True)
    assert double.grid.wrap == (True, True)


def test_a_hypercube_joins_numbers_that_differ_in_one_bit() -> None:
    topology = load_topology("hypercube:4")
    for rank, near in enumerate(topology.neighbours):
        assert near == tuple(sorted(rank ^ 1 << bit for bit in range(4)))


def test_dimensions_may_differ_in_speed() -> None:
    found = speeds(load_topology("torus:4x4@bw=10GB/s/40GB/s"))
    assert found["0", "4"] == 10 * GB
    assert found["0", "1"] == 40 * GB


def test_the_way_back_may_be_slower() -> None:
    found = speeds(load_topology("ring:4@bw=10GB/s,back=1GB/s"))
    assert found["0", "1"] == 10 * GB
    assert found["1", "0"] == 1 * GB
    assert found["3", "0"] == 10 * GB
    found = speeds(load_topology("mesh:2x2@bw=10GB/s/20GB/s,back=1GB/s/2GB/s"))
    assert found["2", "0"] == 1 * GB
    assert found["1", "0"] == 2 * GB
    assert speeds(load_topology("switch:3@back=5GB/s"))["s0", "1"] == 5 * GB
    assert speeds(load_topology("fullmesh:3@back=5GB/s"))["2", "1"] == 5 * GB


def test_parallel_links_are_rows_of_their_own() -> None:
    topology = load_topology("ring:4@links=3")
    assert len(topology.links_between(0, 1)) == 3
    assert [topology.link_name(link) for link in topology.links_between(0, 1)] == [
        "0->1#0",
        "0->1#1",
        "0->1#2",
    ]


def test_a_fat_tree_joins_every_leaf_to_every_spine() -> None:
    topology = load_topology("fattree:3,2,4@bw=10GB/s,uplink=40GB/s,uplinks=2")
    found = speeds(topology)
    assert found["5", "s1"] == found["s1", "5"] == 10 * GB
    assert ("5", "s0") not in found
    for leaf in range(3):
        for spine in (3, 4):
            assert found[f"s{leaf}", f"s{spine}"] == 80 * GB
    assert ("s0", "s1") not in found
    assert topology.groups == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))


def test_a_bigraph_joins_halves_and_not_switches_of_one_half() -> None:
    topology = load_topology("bigraph:4,8@uplink=100GB/s")
    found = speeds(topology)
    for upper in range(4):
        for lower in range(4, 8):
            assert found[f"s{upper}", f"s{lower}"] == 100 * GB
    assert not any((f"s{a}", f"s{b}") in found for a in range(4) for b in range(4))
    assert all((str(rank), f"s{rank // 4}") in found for rank in range(32))
    assert topology.routing.kind == "by-switch"


@pytest.mark.parametrize(
    ("groups", "routers", "per"), [(4, 2, 2), (9, 4, 2), (5, 2, 1), (2, 3, 1), (3, 1, 2)]
)
def test_a_dragonfly_has_one_cable_for_two_groups(groups: int, routers: int, per: int) -> None:
    topology = load_topology(f"dragonfly:{groups},{routers},{per}")
    between: Counter[tuple[int, int]] = Counter()
    inside: Counter[tuple[int, int]] = Counter()
    for a, b in cables(topology):
        if a.startswith("s") and b.startswith("s"):
            ga, gb = int(a[1:]) // routers, int(b[1:]) // routers
            (inside if ga == gb else between)[ga, gb] += 1
    assert set(between.values()) == {1}
    assert len(between) == groups * (groups - 1)
    assert set(inside.values()) == ({routers * (routers - 1)} if routers > 1 else set())


def test_a_dragonfly_has_three_speeds() -> None:
    topology = load_topology("dragonfly:4,2,2@bw=1GB/s,local=2GB/s,global=3GB/s")
    assert Counter(topology.bandwidth.tolist()) == {1 * GB: 32, 2 * GB: 8, 3 * GB: 12}


@pytest.mark.parametrize(("kind", "nvlink", "nic"), [("dgx-a100", 300, 25), ("dgx-h100", 450, 50)])
def test_flat_boxes_have_an_nvswitch_and_a_cable_for_each_gpu(kind: str, nvlink: int, nic: int) -> None:
    topology = load_topology(f"{kind}:2@fabric=flat,nic_lat=5us")
    found = speeds(topology)
    assert found["3", "s0"] == found["s1", "15"] == nvlink * GB
    assert found["3", "s2"] == found["s2", "15"] == nic * GB
    assert ("3", "s1") not in found
    assert topology.hosts == (tuple(range(8)), tuple(range(8, 16)))
    assert topology.latency_ps[topology.bandwidth == nic * GB].tolist() == [5 * 10**6] * 32
    faster = speeds(load_topology(f"{kind}:2@fabric=flat,nvlink=1TB/s,nic=100GB/s"))
    assert (faster["0", "s0"], faster["0", "s2"]) == (1000 * GB, 100 * GB)
    plain = load_topology(f"{kind}:2@fabric=flat")
    assert plain.digest == load_topology(f"hosts:8,8@intra={nvlink}GB/s,nic={nic}GB/s").digest


def test_one_box_needs_no_network() -> None:
    topology = load_topology("dgx-h100:1")
    assert topology.switches == 1
    assert topology.groups == ()


def test_hosts_may_be_uneven_and_have_uplinks_of_their_own() -> None:
    topology = load_topology("hosts:3,2@intra=100GB/s,intra_lat=1ns,uplink=10GB/s/5GB/s,lat=2us")
    found = speeds(topology)
    assert found["2", "s0"] == found["s1", "4"] == 100 * GB
    assert found["s0", "s2"] == 10 * GB
    assert found["s2", "s1"] == 5 * GB
    assert topology.hosts == topology.groups == ((0, 1, 2), (3, 4))
    assert sorted(set(topology.latency_ps.tolist())) == [1000, 2_000_000]


def test_hosts_may_differ_inside() -> None:
    found = speeds(load_topology("hosts:2,2@intra=100GB/s/50GB/s"))
    assert (found["0", "s0"], found["3", "s1"]) == (100 * GB, 50 * GB)


def test_ranks_may_have_nics_of_their_own() -> None:
    topology = load_topology("hosts:2,1,3@intra=100GB/s,nic=10GB/s/5GB/s/1GB/s,lat=2us,intra_lat=1us")
    found = speeds(topology)
    assert found["1", "s0"] == found["s1", "4"] == 100 * GB
    assert (found["0", "s2"], found["2", "s2"], found["s2", "5"]) == (10 * GB, 5 * GB, 1 * GB)
    assert [end for start, end in found if start == "2"] == ["s2"]  # alone in its host
    assert ("s0", "s2") not in found
    assert topology.hosts == ((0, 1), (2,), (3, 4, 5))


def test_hosts_may_stand_in_racks() -> None:
    topology = load_topology(
        "hosts:2,3,1@bw=9GB/s,intra=100GB/s,uplink=10GB/s,racks=2/1,rack_uplink=7GB/s/5GB/s,rack_lat=3us"
    )
    found = speeds(topology)
    assert found["s0", "s3"] == found["s1", "s3"] == found["s4", "s2"] == 10 * GB
    assert (found["s3", "s5"], found["s5", "s4"]) == (7 * GB, 5 * GB)
    assert ("s0", "s5") not in found
    assert topology.latency_ps[-4:].tolist() == [3 * 10**6] * 4
    assert topology.groups == ((0, 1), (2, 3, 4), (5,))
    assert speeds(load_topology("hosts:1,1,1@bw=9GB/s,racks=2"))["s4", "s5"] == 9 * GB


def test_nics_lead_to_the_switch_of_the_rack() -> None:
    found = speeds(load_topology("hosts:2,2@nic=10GB/s,racks=1,rack_uplink=1GB/s"))
    assert (found["0", "s2"], found["3", "s3"], found["s3", "s4"]) == (10 * GB, 10 * GB, 1 * GB)


def test_what_a_cloud_hands_out_is_a_cluster_of_hosts() -> None:
    free = load_topology("cloud:4x3,12@taken=0,bw=1GB/s,uplink=1GB/s/2GB/s/3GB/s/4GB/s,racks=2")
    assert free == load_topology("hosts:3,3,3,3@bw=1GB/s,uplink=1GB/s/2GB/s/3GB/s/4GB/s,racks=2")


def test_a_cloud_leaves_out_hosts_and_racks_that_give_nothing() -> None:
    seen = set()
    for draw in range(20):
        spec = f"cloud:4x2,4@taken=4,draw={draw},racks=2,intra=9GB/s,uplink=1GB/s/2GB/s/3GB/s/4GB/s"
        topology = load_topology(spec)
        counts = draw_placement(4, 2, 4, taken=4, seed=draw)
        racks = {host // 2 for host, count in enumerate(counts) if count}
        assert [len(host) for host in topology.hosts] == [count for count in counts if count]
        assert topology.switches == len(topology.hosts) + (len(racks) if len(racks) > 1 else 0) + 1
        uplinks = {int(speed) // GB for speed in topology.bandwidth} - {9, 25}
        assert uplinks == {host + 1 for host, count in enumerate(counts) if count}
        seen.add(len(racks))
    assert seen == {1, 2}


def test_the_digest_knows_everything_but_the_name() -> None:
    ring = load_topology("ring:4")
    assert ring == load_topology("torus:4")
    assert hash(ring) == hash(load_topology("torus:4"))
    assert ring.digest != load_topology("ring:4@lat=2us").digest
    assert ring != load_topology("mesh:4")
    assert ring != "ring:4"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tours:4x4", "unknown kind 'tours'; did you mean torus?"),
        ("xyzzy:4", "unknown kind 'xyzzy'.* Known: ring, mesh"),
        ("ring:", "shape '' must be whole numbers"),
        ("ring:x", "shape 'x' must be whole numbers"),
        ("ring:-4", "shape '-4' must be whole numbers"),
        ("ring:4.5", "shape '4.5' must be whole numbers"),
        ("ring:0", "has a zero"),
        ("ring:1", "a cluster of 1 rank has nothing to reduce"),
        ("ring:4x4", "expected ring:N"),
        ("fattree:8", "8 is not a square; write fattree:LEAVES,SPINES,RANKS_PER_LEAF"),
        ("fattree:2,2", "expected fattree:LEAVES,SPINES,RANKS_PER_LEAF"),
        ("bigraph:2,3", "the number of switches \\(3\\) must be even"),
        ("bigraph:2", "expected bigraph:RANKS_PER_SWITCH,SWITCHES"),
        ("dragonfly:4,2", "expected dragonfly:GROUPS,ROUTERS,RANKS_PER_ROUTER"),
        ("dgx-h100:2,2", "expected dgx-h100:BOXES"),
        ("ring:8@bw", "option 'bw' must be written name=value"),
        ("ring:8@bw=", "must be written name=value"),
        ("ring:8@bw=1GB/s,bw=2GB/s", "option 'bw' is given twice"),
        ("ring:8@speed=1GB/s", "unknown option 'speed' for ring; it takes bw, lat"),
        ("switch:8@wrap2=double", "unknown option 'wrap2' for switch"),
        (
            "hosts:4,2@uplnk=1GB/s",
            "unknown option 'uplnk' for hosts; did you mean uplink\\? It takes bw, lat",
        ),
        ("ring:8@links=0", "links=0 must be a whole number of at least 1"),
        ("ring:8@links=two", "links=two must be a whole number"),
        ("ring:8@wrap2=triple", "wrap2=triple is unknown, expected single or double"),
        ("torus:4x4@bw=1GB/s/2GB/s/3GB/s", "lists 3 speeds for 2 dimensions"),
        ("hosts:2,2,2@uplink=1GB/s/2GB/s", "lists 2 speeds for 3 hosts"),
        ("hosts:2,2@uplink=1GB/s,nic=1GB/s", "uplink one to every host; give one of them"),
        ("hosts:2,2@nic=1GB/s/2GB/s/3GB/s", "nic lists 3 speeds for 2 hosts"),
        ("hosts:2,2@rack_uplink=1GB/s", "rack_uplink is for racks; say how many hosts each has"),
        ("hosts:2,2@rack_lat=1us", "rack_lat is for racks"),
        ("hosts:2,2@racks=2/1", "racks=2/1 has room for 3 hosts, and there are 2"),
        ("hosts:2x4x2", "2x4x2: expected a number of ranks, or HOSTSxRANKS"),
        (
            "hosts:3x4@racks=3",
            r"racks=3 puts all hosts \(3\) into one rack.*racks says how many hosts each has",
        ),
        ("cloud:4x2,4@racks=4", "puts all hosts"),
        ("hosts:2,2@racks=0", "racks=0 must be whole numbers of at least 1"),
        ("hosts:2,2@racks=two", "racks=two must be whole numbers"),
        ("hosts:2,2@racks=1,rack_uplink=1GB/s/2GB/s/3GB/s", "lists 3 speeds for 2 racks"),
        ("cloud:8,24", "expected cloud:HOSTSxGPUS,WANTED"),
        ("cloud:8x8,33", "33 GPUs are asked for, and 32 are free"),
        ("cloud:8x8,24@taken=65", "65 GPUs are taken, but there are 64"),
        ("cloud:8x8,24@rule=nearest", "rule=nearest is unknown, expected packed or random"),
        ("cloud:8x8,24@draw=-1", "draw=-1 must be a whole number of at least 0"),
        ("cloud:8x8,24@seed=1", "seed belongs to routing=ecmp"),
        ("ring:8@routing=fastest", "routing 'fastest' is unknown"),
        ("ring:8@seed=-1", "seed=-1 must be a whole number of at least 0"),
        ("ring:8+fial=0-1", "'\\+fial=0-1' must be \\+fail=A-B"),
        ("ring:8+fail", "must be \\+fail=A-B"),
        ("ring:8@lat=1us+fail=", "must be \\+fail=A-B"),
        ("Ring:8", "expected KIND:SHAPE"),
        (":8", "expected KIND:SHAPE"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        load_topology(spec)


def test_a_wrong_quantity_in_a_spec_is_a_unit_error() -> None:
    with pytest.raises(UnitError, match=r"ring:8@bw=25GB: option bw: .*a speed needs '/s'"):
        load_topology("ring:8@bw=25GB")
    with pytest.raises(UnitError, match=r"option lat: .*unknown unit"):
        load_topology("ring:8@lat=5lightyears")
    with pytest.raises(UnitError, match="option uplink: bandwidth '1': a speed needs a unit"):
        load_topology("hosts:4,2@uplink=1")


@pytest.mark.parametrize(
    "spec",
    [
        "ring:999999999",
        "torus:99999x99999",
        "torus:2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2",
        "hypercube:17",
        "fullmesh:60000",
        "fullmesh:1000@links=999999",
        "fattree:100000,1,1",
        "bigraph:1,100000",
        "dragonfly:70000,1,1",
        "dgx-h100:999999999",
        "hosts:999999999,999999999",
        "cloud:999999999x999999999,8",
        "ring:8@links=999999999",
        "fattree:32768,32768,2",
        "hypercube:16@links=4",
        "bigraph:1,65536",
        "dragonfly:1,65536,1",
        "ring:65536@links=31",
        "hosts:65537x1",
    ],
)
def test_a_huge_spec_names_the_bound_it_hits_before_a_cable_is_drawn(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CableNotes, "cable", lambda *_, **__: pytest.fail("a cable was drawn"))
    with pytest.raises(LimitError, match=f"{re.escape(spec)}: .* that Weft accepts"):
        load_topology(spec)


def test_a_spec_has_at_most_4096_characters() -> None:
    with pytest.raises(TopologyError, match="10,005 characters are too many"):
        load_topology("hosts:" + ",".join(["1"] * 5000))


def test_spaces_around_a_spec_do_not_matter() -> None:
    assert load_topology("  ring:4 ") == load_topology("ring:4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ring:8", True), ("a/b:c", False), ("x.toml", False), ("C:\\x.toml", True), ("cluster", False)],
)
def test_a_spec_is_told_from_a_file_name(text: str, expected: bool) -> None:
    assert is_spec(text) is expected


def test_every_kind_names_its_options() -> None:
    for kind in KINDS.values():
        assert kind.options.endswith("routing, seed")


@given(st.text(alphabet="ringtosmeh:x,@=+fail->rank0123456789GB/ul", max_size=40))
def test_any_text_is_a_topology_or_an_error(text: str) -> None:
    spec = re.sub(r"[0-9]{4,}", "16", text)
    with contextlib.suppress(WeftError):
        load_topology(f"ring:{spec}")


def test_a_grid_may_have_a_latency_for_each_dimension() -> None:
    topology = load_topology("torus:3x3@lat=70ns/400ns")
    ends = zip(
        topology.link_src.tolist(), topology.link_dst.tolist(), topology.latency_ps.tolist(), strict=True
    )
    assert {latency for src, dst, latency in ends if src // 3 == dst // 3} == {400_000}
    assert set(topology.latency_ps.tolist()) == {70_000, 400_000}
    with pytest.raises(TopologyError, match="2 latencies for 3 dimensions; give one, or one each"):
        load_topology("torus:3x3x3@lat=70ns/400ns")


def test_the_platform_of_ace() -> None:
    topology = load_topology("ace:4x2x2")
    assert topology.ranks == 16
    out = [(0, 4), (0, 12), (0, 2), (0, 1)]
    links = {pair: topology.links_between(*pair) for pair in out}
    assert [len(links[pair]) for pair in out] == [1, 1, 2, 2]  # two links along an axis of two
    assert [int(topology.bandwidth[links[pair][0]]) // 10**9 for pair in out] == [200, 200, 25, 25]
    with pytest.raises(TopologyError, match="ace:LxVxH"):
        load_topology("ace:4x4")
