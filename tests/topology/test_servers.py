"""Servers on a fabric: what is wired to what, and that messages go the way hardware would send them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest

from weft.errors import LimitError, TopologyError
from weft.schedule import ScheduleBuilder
from weft.simulation import simulate
from weft.topology import Topology, load_topology
from weft.topology.cable_notes import CableNotes
from weft.topology.servers import Fabric, Server, connect

GB = 10**9


def path(topology: Topology, src: int, dst: int) -> str:
    """Nodes on a route, as text."""
    nodes = [src, *(int(topology.link_dst[link]) for link in topology.route(src, dst))]
    return " ".join(topology.node_name(node) for node in nodes)


def speed(topology: Topology, a: str, b: str) -> int:
    (link,) = topology.links_between(topology.parse_node(a), topology.parse_node(b))
    return int(topology.bandwidth[link])


@pytest.mark.parametrize(
    ("spec", "ranks", "switches", "links"),
    [
        ("servers:4x8", 32, 4 * (4 + 1 + 1) + 1, 2 * (4 * (8 + 4 + 1) + 4)),
        ("servers:4x8@nics=2", 32, 4 * (4 + 1 + 2) + 1, 2 * (4 * (8 + 4 + 2) + 8)),
        ("servers:4x8@nics=8", 32, 4 * (8 + 1 + 8) + 1, 2 * (4 * (8 + 8 + 8) + 32)),
        ("servers:4x8@switches=1", 32, 4 * 3 + 1, 2 * (4 * (8 + 1 + 1) + 4)),
        ("servers:4x8@nics=4,nic_at=switch", 32, 4 * (4 + 1 + 4) + 1, 2 * (4 * (8 + 4 + 4) + 16)),
        ("servers:2x1", 2, 5, 2 * 6),
        ("servers:2x3", 6, 2 * 3 + 1, 2 * (2 * (3 + 1 + 1) + 2)),
        ("servers:1x8", 8, 5, 2 * 12),
        ("servers:1x8@nics=8", 8, 9, 2 * 16),
        ("servers:4x2@nics=2,fabric=clos,leaves=4", 8, 4 * 5 + 4 + 2, 2 * (4 * 6 + 8 + 4 * 2)),
        ("servers:4x2@nics=2,fabric=clos,leaves=2,spines=3,uplinks=2", 8, 25, 2 * (4 * 6 + 8 + 2 * 3 * 2)),
        ("servers:4x2@nics=2,fabric=bigraph,leaves=4", 8, 4 * 5 + 4, 2 * (4 * 6 + 8 + 4)),
    ],
)
def test_a_spec_has_as_many_ranks_switches_and_links(
    spec: str, ranks: int, switches: int, links: int
) -> None:
    topology = load_topology(spec)
    assert (topology.ranks, topology.switches, topology.links) == (ranks, switches, links)
    gpus = int(re.split("[x@]", spec)[1])
    assert topology.hosts == tuple(tuple(range(first, first + gpus)) for first in range(0, ranks, gpus))


def test_speeds_are_those_given() -> None:
    spec = "servers:2x2@switches=2,pcie=3GB/s,root=2GB/s,bw=5GB/s,uplink=7GB/s,lat=3us,pcie_lat=1ns"
    topology = load_topology(f"{spec},fabric=clos,leaves=2,spines=1")
    # In a server: two PCIe switches, the root complex, the NIC.
    assert [speed(topology, *ends) for ends in (("0", "s0"), ("s0", "s2"), ("s2", "s3"))] == [
        3 * GB,
        2 * GB,
        2 * GB,
    ]
    assert speed(topology, "s3", "s8") == 5 * GB
    assert speed(topology, "s8", "s10") == 7 * GB
    latency = {int(topology.latency_ps[link]) for link in topology.route(0, 1)}
    assert latency == {1000}
    assert sum(topology.latency_ps[list(topology.route(0, 2))].tolist()) == 6 * 1000 + 4 * 3_000_000


@pytest.mark.parametrize(
    ("spec", "src", "dst", "slowest"),
    [
        (
            "servers:2x4@root=7GB/s",
            0,
            1,
            12 * GB,
        ),  # two GPUs of one PCIe switch do not cross the root complex
        ("servers:2x4@root=7GB/s", 0, 2, 7 * GB),
        ("servers:2x4@switches=1,root=7GB/s", 0, 4, 7 * GB),  # the port of the NIC alone
        ("servers:2x4@nics=4,root=7GB/s", 0, 4, 12 * GB),  # a NIC on the GPU's own PCIe switch
        ("servers:2x4@nics=2,nic_at=switch,root=7GB/s", 0, 4, 12 * GB),
        ("servers:2x4@root=20GB/s", 0, 4, 12 * GB),  # a fast root complex makes no link of a device faster
    ],
)
def test_only_what_crosses_the_root_complex_has_its_speed(
    spec: str, src: int, dst: int, slowest: int
) -> None:
    topology = load_topology(spec)
    links = list(topology.route(src, dst))
    assert topology.bandwidth[links].min() == slowest
    assert topology.bandwidth[list(topology.route(dst, src))].min() == slowest


def test_a_root_complex_without_a_speed_of_its_own_is_as_fast_as_pcie() -> None:
    assert load_topology("servers:2x4@root=12GB/s") == load_topology("servers:2x4")


@pytest.mark.parametrize(("ssds", "gigabytes"), [(1, 3.2), (2, 6.4), (3, 7.1)])
def test_flows_from_several_ports_share_the_port_that_they_leave_by(ssds: int, gigabytes: float) -> None:
    """As measured on a Xeon E5-2650 v4: 3.2, 6.3 and 7.1 GB/s from one, two and three SSDs to a GPU."""
    server = load_topology(
        "servers:1x4@switches=4,root=7.1GB/s"
    )  # the GPU is rank 0, the SSDs are the others
    speeds = server.bandwidth.copy()
    speeds[[link for link in range(server.links) if 0 < server.link_src[link] < 4]] = 3_200_000_000
    builder = ScheduleBuilder(replace(server, bandwidth=speeds), "all_gather", "by hand")
    for ssd in range(1, 1 + ssds):
        builder.add(step=0, chunk=ssd, src=ssd, dst=0, op="copy")
    size = 4 << 30
    seconds = simulate(builder.build(), size, segment_bytes=None, sharing="fluid").seconds
    assert ssds / 4 * size / seconds / GB == pytest.approx(gigabytes, rel=0.001)


def test_defaults_are_pcie_3_and_100_gigabits() -> None:
    topology = load_topology("servers:2x2")
    assert speed(topology, "0", "s0") == 12 * GB
    assert speed(topology, "s2", "s6") == 12_500_000_000


@pytest.mark.parametrize(
    ("spec", "src", "dst", "expected"),
    [
        # GPUs of one PCIe switch do not see the root complex, others of the server do.
        ("servers:2x4", 0, 1, "0 s0 1"),
        ("servers:2x4", 0, 2, "0 s0 s2 s1 2"),
        # To another server: PCIe switch, root complex, the one NIC, and back.
        ("servers:2x4", 3, 4, "3 s1 s2 s3 s8 s7 s6 s4 4"),
        # A NIC for each GPU: never across the root complex, which is s4, to another server.
        ("servers:2x4@nics=4", 0, 4, "0 s0 s5 s18 s14 s9 4"),
        ("servers:2x4@nics=4", 3, 5, "3 s3 s8 s18 s15 s10 5"),
        ("servers:2x4@nics=4", 0, 1, "0 s0 s4 s1 1"),
        # NICs on the PCIe switches of two GPUs each.
        ("servers:2x4@nics=2,nic_at=switch", 1, 6, "1 s0 s3 s10 s9 s6 6"),
        ("servers:1x4", 0, 3, "0 s0 s2 s1 3"),
        ("servers:2x1", 0, 1, "0 s0 s1 s4 s3 s2 1"),
    ],
)
def test_messages_go_the_way_a_server_would_send_them(spec: str, src: int, dst: int, expected: str) -> None:
    assert path(load_topology(spec), src, dst) == expected


@pytest.mark.parametrize("fabric", ["switch", "clos,leaves=8", "bigraph,leaves=8"])
@pytest.mark.parametrize("nics", [1, 2, 4])
@pytest.mark.parametrize("routing", ["shortest", "ecmp"])
def test_nothing_leaves_a_server_for_a_gpu_of_its_own_nor_enters_a_third(
    fabric: str, nics: int, routing: str
) -> None:
    topology = load_topology(f"servers:8x4@nics={nics},fabric={fabric},routing={routing}")
    inside = Server(gpus=4, nics=nics).nodes
    for src, dst in permutations(range(topology.ranks), 2):
        nodes = [int(topology.link_dst[link]) - topology.ranks for link in topology.route(src, dst)[:-1]]
        visited = {node // inside for node in nodes if node < 8 * inside}
        assert visited == {src // 4, dst // 4}
        assert any(node >= 8 * inside for node in nodes) == (src // 4 != dst // 4)


def test_each_gpu_uses_its_own_nic_and_no_link_of_another() -> None:
    topology = load_topology("servers:4x4@nics=4")
    shared = topology.parse_node("s36")
    for gpu in range(4):
        used = {
            (int(topology.link_src[link]), int(topology.link_dst[link]))
            for dst in range(4, 16)
            for link in topology.route(gpu, dst)[:3]
        }
        assert used == {(gpu, 16 + gpu), (16 + gpu, 21 + gpu), (21 + gpu, shared)}


def test_two_nics_on_the_root_complex_share_what_leaves() -> None:
    topology = load_topology("servers:2x4@nics=2")
    used = {path(topology, 0, dst).split()[3] for dst in range(4, 8)}
    assert used == {"s3", "s4"}


def test_a_bigraph_of_servers_has_one_way_between_halves() -> None:
    topology = load_topology("servers:4x4@nics=4,fabric=bigraph,leaves=4")
    assert path(topology, 0, 8) == "0 s0 s5 s36 s38 s23 s18 8"
    assert len(path(topology, 0, 4).split()) == 9  # within a half: by way of a switch of the other


def test_oversubscription_is_a_matter_of_spines() -> None:
    topology = load_topology("servers:8x1@fabric=clos,leaves=2,spines=1,routing=ecmp,seed=3")
    leaf, spine = topology.parse_node("s16"), topology.parse_node("s18")
    assert len(topology.links_between(leaf, spine)) == 1
    assert {path(topology, src, 4 + src).split()[4] for src in range(4)} == {"s18"}
    assert topology.routing.seed == 3


def test_the_builder_takes_servers_and_fabrics_from_python() -> None:
    made = connect("mine", 4, Server(gpus=2, nics=2), Fabric("clos", leaves=4, spines=2))
    assert made == load_topology("servers:4x2@nics=2,fabric=clos,leaves=4,spines=2")
    assert made.name == "mine"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("servers:8", "expected servers:SERVERSxGPUS"),
        ("servers:4x8@fabric=clos", "fabric=clos needs leaves="),
        ("servers:4x8@fabric=bigraph,leaves=3", "must be even"),
        ("servers:4x8@fabric=clos,leaves=3", "4 NICs do not divide evenly by 3 leaves"),
        ("servers:4x8@leaves=2", "one switch has no leaves; give fabric=clos"),
        ("servers:4x8@fabric=bigraph,leaves=2,spines=2", "only a Clos has spines"),
        ("servers:4x8@fabric=ring", "fabric=ring is unknown, expected switch or clos or bigraph"),
        ("servers:4x8@switches=3", "8 GPUs do not divide evenly by 3 PCIe switches"),
        ("servers:4x8@nics=2,nic_at=switch,switches=4", "2 NICs on 4 PCIe switches: give one for each"),
        ("servers:4x8@nics=0", "nics=0 must be a whole number of at least 1"),
        ("servers:4x8@nic_at=gpu", "nic_at=gpu is unknown"),
        ("servers:4x8@nvlink=1GB/s", "unknown option 'nvlink' for servers; it takes nics, nic_at"),
        ("servers:1x1", "a cluster of 1 rank has nothing to reduce"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(spec) + f".*{message}"):
        load_topology(spec)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Server(gpus=0),
        lambda: Server(nics=0),
        lambda: Server(pcie_switches=-4),
        lambda: Server(nic_at="x"),
        lambda: Fabric("x"),
        lambda: Fabric("clos", leaves=0),
        lambda: Fabric("clos", leaves=2, spines=-1),
        lambda: connect("none", 0, Server(), Fabric()),
    ],
)
def test_values_are_checked_where_they_are_made(build: object) -> None:
    with pytest.raises(TopologyError):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "spec",
    [
        "servers:99999x99999",
        "servers:30000x2@nics=2",
        "servers:2x8@nics=900000000",
        "servers:2x8@fabric=clos,leaves=2,spines=900000000",
        "servers:2x8@fabric=clos,leaves=2,uplinks=900000000",
        "servers:16384x1@fabric=bigraph,leaves=16384",
    ],
)
def test_a_huge_spec_is_refused_before_a_cable_is_drawn(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CableNotes, "cable", lambda *_, **__: pytest.fail("a cable was drawn"))
    with pytest.raises(LimitError, match=f"{re.escape(spec)}: .* that Weft accepts"):
        load_topology(spec)
