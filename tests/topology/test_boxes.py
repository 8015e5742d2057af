"""Boxes of GPUs on rails, leaves and tiers: what is inside, what joins them, and which way is left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from weft.errors import LimitError, TopologyError, UnitError
from weft.topology import Topology, load_topology
from weft.topology.nccl_xml import parse_nccl_xml
from weft.topology.nvidia_smi import parse_nvidia_smi
from weft.topology.rated_links import NVLINK, PCIE_X16, network_port, nvlink_of
from weft.topology.record import from_record, to_record
from weft.topology.toml_file import format_toml, parse_toml

GB = 10**9
DATA = Path(__file__).parents[1] / "data" / "topology"


def way(topology: Topology, src: str, dst: str) -> list[str]:
    """Names of the nodes on the network's own path."""
    links = topology.route(topology.parse_node(src), topology.parse_node(dst))
    return [topology.node_name(int(topology.link_dst[link])) for link in links]


def roles(topology: Topology) -> Counter[str]:
    """How many switches of each role there are."""
    return Counter(name.rpartition(".")[2].rstrip("0123456789") for name in topology.switch_names)


def up(topology: Topology, leaf: str) -> int:
    """Bytes per second that a leaf can send to spines."""
    node = topology.parse_node(leaf)
    links = [k for k in range(topology.links) if topology.link_src[k] == node]
    names = [topology.node_name(int(topology.link_dst[k])) for k in links]
    return sum(int(topology.bandwidth[k]) for k, n in zip(links, names, strict=True) if n.startswith("spine"))


def test_rails_have_a_leaf_for_each_nic_of_a_box() -> None:
    topology = load_topology("rails:4x8@nics=8,spines=4,oversub=3")
    assert roles(topology) == {"nvswitch": 4, "pcie": 32, "nic": 32, "leaf": 8, "spine": 4}
    assert topology.hosts == tuple(tuple(range(8 * box, 8 * box + 8)) for box in range(4))
    for box in range(4):
        assert topology.links_between(*map(topology.parse_node, (f"host{box}.nic5", "leaf5")))
    assert up(topology, "leaf5") == pytest.approx(4 * 50 * GB / 3, rel=1e-9)


def test_a_nic_may_serve_two_gpus() -> None:
    topology = load_topology("rails:2x8@nics=4")
    assert roles(topology) == {"nvswitch": 2, "pcie": 8, "nic": 8, "leaf": 4, "spine": 1}
    assert way(topology, "host0.gpu3", "host1.gpu2")[:3] == ["host0.pcie1", "host0.nic1", "leaf1"]


@pytest.mark.parametrize(
    ("boxes", "leaves", "spines", "cables"),
    [(31, 8, 4, 256), (63, 16, 8, 512), (95, 24, 16, 768), (127, 32, 16, 1024)],
)
def test_the_fabric_of_a_superpod_has_the_switches_of_its_reference_architecture(
    boxes: int, leaves: int, spines: int, cables: int
) -> None:
    topology = load_topology(f"dgx-h100:{boxes}")
    found = roles(topology)
    assert (found["leaf"], found["spine"]) == (leaves, spines)
    inside = boxes * 4 * 8
    assert topology.links // 2 - inside == cables


def test_leaves_of_whole_boxes_keep_their_oversubscription() -> None:
    topology = load_topology("leafspine:16x8@oversub=3,spines=4")
    assert roles(topology)["leaf"] == 4
    assert up(topology, "leaf0") == pytest.approx(32 * 50 * GB / 3, rel=1e-9)
    assert way(topology, "host0.gpu0", "host3.gpu5")[2:4] == ["leaf0", "host3.nic5"]


def test_three_tiers_have_spines_for_each_pod_and_cores_above() -> None:
    topology = load_topology("threetier:16x8@pods=4,per_leaf=2,core_oversub=2")
    found = roles(topology)
    assert (found["leaf"], found["spine"], found["core"]) == (8, 4, 1)
    assert way(topology, "host0.gpu0", "host15.gpu0")[2:7] == ["leaf0", "spine0", "core0", "spine3", "leaf7"]
    between = topology.links_between(*map(topology.parse_node, ("spine0", "core0")))
    assert sum(int(topology.bandwidth[link]) for link in between) == 32 * 50 * GB / 2


def test_hashed_flows_spread_over_the_cables_between_leaf_and_spine() -> None:
    topology = load_topology("leafspine:8x8@routing=ecmp,seed=4")
    offsets, links = topology.routes(range(32), range(32, 64))
    assert len(offsets) == 33
    used = {int(k) for k in links if topology.node_name(int(topology.link_dst[k])).startswith("spine")}
    parallel = topology.links_between(*map(topology.parse_node, ("leaf0", "spine0")))
    assert 8 < len(used) < len(parallel)  # some collide, as hashed flows do


def test_a_dead_nic_leads_over_nvlink_to_another_gpu() -> None:
    whole = load_topology("dgx-h100:2")
    assert way(whole, "5", "13") == ["host0.pcie5", "host0.nic5", "leaf5", "host1.nic5", "host1.pcie5", "13"]
    broken = load_topology("dgx-h100:2+fail=host0.nic5")
    path = way(broken, "5", "13")
    assert path[0] == "host0.nvswitch"
    assert path[1] in {"0", "1", "2", "3", "4", "6", "7"}
    assert path[2:4] == [f"host0.pcie{path[1]}", f"host0.nic{path[1]}"]
    assert broken.links == whole.links - 4
    mesh = way(load_topology("mi300x:2+fail=host0.nic5"), "5", "13")
    assert mesh[0] in {"0", "1", "2", "3", "4", "6", "7"}


def test_a_dead_nic_is_replaced_by_the_one_beside_it() -> None:
    broken = load_topology("dgx-a100:2+fail=host0.nic5")
    assert way(broken, "5", "13")[:3] == ["host0.pcie2", "host0.nic4", "leaf4"]


def test_a_dead_nic_of_a_pcie_box_leads_through_the_cpu() -> None:
    whole, broken = (
        load_topology("rails:2x8@inside=pcie"),
        load_topology("rails:2x8@inside=pcie+fail=host0.nic0"),
    )
    assert way(whole, "0", "8")[:2] == ["host0.pcie0", "host0.nic0"]
    assert way(broken, "0", "8")[:5] == [
        "host0.pcie0",
        "host0.cpu0",
        "host0.cpu1",
        "host0.pcie2",
        "host0.nic1",
    ]


def test_speeds_are_changed_by_name() -> None:
    plain = load_topology("dgx-h100:2")
    slow = load_topology("dgx-h100:2+speed=host1.nic3:25GB/s,leaf0-spine0:10GB/s,0>host0.nvswitch:1GB/s")
    changed = {
        plain.link_name(k).split("#")[0]: int(slow.bandwidth[k]) // GB
        for k in range(plain.links)
        if slow.bandwidth[k] != plain.bandwidth[k]
    }
    assert changed == {
        "host1.pcie3->host1.nic3": 25,
        "host1.nic3->host1.pcie3": 25,
        "host1.nic3->leaf3": 25,
        "leaf3->host1.nic3": 25,
        "leaf0->spine0": 10,
        "spine0->leaf0": 10,
        "0->host0.nvswitch": 1,
    }


def test_a_gpu_fails_by_name() -> None:
    broken = load_topology("dgx-h100:2+fail=host1.gpu0")
    assert broken.rank_labels == tuple(rank for rank in range(16) if rank != 8)
    assert broken.switch_names == load_topology("dgx-h100:2").switch_names


def test_a_file_keeps_names_and_takes_faults_by_name(tmp_path: Path) -> None:
    topology = load_topology("dgx-h100:2")
    again = parse_toml(format_toml(topology), "copy.toml")
    assert (again.digest, again.switch_names) == (topology.digest, topology.switch_names)
    assert from_record(to_record(topology)).switch_names == topology.switch_names
    path = tmp_path / "copy.toml"
    path.write_text(format_toml(topology).replace('"s0"', '"host0.nvswitch"'))
    assert load_topology(f"{path}+fail=leaf1").digest == load_topology("dgx-h100:2+fail=leaf1").digest
    slower = load_topology(f"{path}+speed=leaf1:1GB/s+fail=leaf2")
    assert slower.bandwidth.min() == GB


def test_an_h100_box_is_the_same_from_a_preset_and_from_both_imports() -> None:
    row = [[("NV18" if a != b else "X") for b in range(8)] for a in range(8)]
    head = "\t" + "\t".join(f"GPU{n}" for n in range(8))
    table = "\n".join([head, *("\t".join([f"GPU{n}", *cells]) for n, cells in enumerate(row))])
    gpus = "".join(
        f'<pci busid="0000:{n:02x}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{n}" sm="90" rank="{n}">'
        '<nvlink target="0000:c4:00.0" count="18" tclass="0x068000"/></gpu></pci>'
        for n in range(1, 9)
    )
    dump = f'<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">{gpus}</cpu></system>'
    for rating, speed in (("nominal", 450 * GB), ("effective", 18 * 20_780_000_000)):
        preset = load_topology(f"dgx-h100:1@speed={rating}")
        assert set(preset.bandwidth.tolist()) == {speed}
        assert parse_nvidia_smi(table, "topo.txt", rating).digest == preset.digest
        assert parse_nccl_xml(dump, "topo.xml", rating).digest == preset.digest


def test_a_file_is_read_with_effective_speeds_where_asked() -> None:
    path = DATA / "dgx-a100.nccl.xml"
    plain, real = load_topology(path), load_topology(f"{path}@speed=effective")
    assert set(plain.bandwidth.tolist()) == {300 * GB}
    assert set(real.bandwidth.tolist()) == {240 * GB}
    with pytest.raises(TopologyError, match="speed"):
        load_topology(f"{path}@speed=good")


def test_effective_speeds_are_below_nominal_ones() -> None:
    known = [*NVLINK.values(), *PCIE_X16.values(), network_port(400_000), nvlink_of(86)]
    assert all(link.effective is not None and link.effective < link.nominal for link in known)
    assert all(link.source and link.effective_source for link in known)
    fast, real = load_topology("dgx-h100:2"), load_topology("dgx-h100:2@speed=effective")
    assert (real.bandwidth < fast.bandwidth).all()


@pytest.mark.parametrize("spec", ["tpu-v5p:4x4x4", "trn2:4", "mac-mesh:4", "gb200-nvl72:2"])
def test_a_link_that_nobody_measured_has_no_effective_speed(spec: str) -> None:
    with pytest.raises(TopologyError, match="no measured speed of this link is known"):
        load_topology(f"{spec}@speed=effective")


def test_a_slice_of_a_pod_closes_by_whole_blocks() -> None:
    topology = load_topology("tpu-v4:2x4x8@ocs_lat=3us")
    assert topology.grid is not None
    assert topology.grid.wrap == (False, True, True)
    through_switches = int((topology.latency_ps == 3 * 10**6).sum())
    assert through_switches == 2 * (2 * 8 + 2 * 4 * 2)
    assert load_topology("tpu-v4:4x4x4").digest == load_topology("torus:4x4x4@bw=50GB/s").digest


def test_trainium_instances_are_joined_by_slower_rings() -> None:
    topology = load_topology("trn2:4")
    assert Counter(topology.bandwidth.tolist()) == {128 * GB: 256, 64 * GB: 128}
    assert load_topology("trn2:1").ranks == 16


def test_groups_of_a_dragonfly_plus_meet_at_spines() -> None:
    topology = load_topology("dragonflyplus:4,2,3,4@local=50GB/s,global=100GB/s")
    far = [topology.link_name(k) for k in range(topology.links) if topology.bandwidth[k] == 100 * GB]
    assert len(far) == 4 * 3
    assert all("spine" in a and "spine" in b for a, b in (name.split("->") for name in far))
    assert len({name.split("->")[0] for name in far}) == 12  # each spine has one cable


@pytest.mark.parametrize(
    ("spec", "ranks", "speeds"),
    [
        ("dgx-b200:1", 8, {900 * GB: 16}),
        ("dgx-b200:1@speed=effective", 8, {18 * 40_100_000_000: 16}),
        ("dgx-b200:2@fabric=flat", 16, {900 * GB: 32, 50 * GB: 32}),
        ("spark-ring:4", 4, {25 * GB: 8}),
        ("spark-ring:4@speed=effective", 4, {24_320_000_000: 8}),
        ("spark-ring:2", 2, {25 * GB: 2}),
        ("pcie:8", 8, {31_500_000_000: 24, 16 * GB: 2}),
        ("ocs:4x4x4", 64, {25 * GB: 384}),
    ],
)
def test_links_and_speeds_of_a_spec(spec: str, ranks: int, speeds: dict[int, int]) -> None:
    topology = load_topology(spec)
    assert topology.ranks == ranks
    assert Counter(topology.bandwidth.tolist()) == speeds


def test_gpus_on_pcie_alone_meet_at_their_cpus() -> None:
    topology = load_topology("pcie:8")
    assert roles(topology) == {"pcie": 4, "cpu": 2}


def test_a_torus_through_optical_switches_closes_by_whole_blocks() -> None:
    topology = load_topology("ocs:4x4x8@ocs_lat=3us")
    assert topology.grid is not None
    assert topology.grid.wrap == (True, True, True)
    assert load_topology("ocs:2x4x4").grid.wrap == (False, True, True)  # type: ignore[union-attr]
    assert load_topology("ocs:4x4x4").digest == load_topology("torus:4x4x4").digest


def test_the_speed_of_nvlink_4_is_that_of_a_copy() -> None:
    assert "p2pBandwidthLatencyTest" in NVLINK[4].effective_source
    assert 371 * GB <= NVLINK[4].rated("effective", 18) <= 377 * GB


def test_a_rack_of_72_has_four_rails() -> None:
    topology = load_topology("gb200-nvl72:2")
    assert roles(topology) == {"nvswitch": 2, "grace": 72, "nic": 144, "leaf": 8, "spine": 3}
    assert topology.hosts == (tuple(range(72)), tuple(range(72, 144)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rails:2x8@nics=3", "8 GPUs do not divide evenly by 3 PCIe switches"),
        ("rails:2x8@rails=3", "8 NICs do not divide evenly by 3 rails"),
        ("rails:2x8@oversub=0", "oversub=0 must be a number such as 1, 1.5 or 3"),
        ("rails:2x8@oversub=1/0", "oversub=1/0 must be a number"),
        ("rails:2x8@oversub=nan", "oversub=nan must be a number"),
        ("leafspine:2x8@oversub=nan", "oversub=nan must be a number"),
        ("leafspine:2x8@oversub=2", r"a single leaf, which needs no spines; .*\(per_leaf=\)"),
        ("threetier:16x8@pods=4,core_oversub=nan", "core_oversub=nan must be a number"),
        ("leafspine:2x8@spines=2", "a single leaf, which needs no spines"),
        ("threetier:16x8@pods=3", "16 boxes do not divide evenly by 3 pods"),
        ("dgx-h100:1@spines=2", "one box alone has no network, so spines has no meaning"),
        ("dgx-h100:2@fabric=flat,pcie=1GB/s", "fabric=flat has no PCIe, so pcie has no meaning"),
        ("mi300x:2@fabric=flat", "fabric=flat is for boxes with an NVSwitch"),
        ("dgx-h100:2@fabric=ring", "fabric=ring is unknown"),
        ("dgx-h100:2@speed=fast", "speed=fast is unknown"),
        ("rails:8", "expected rails:BOXESxGPUS"),
        ("tpu-v4:4x4", "expected AxBxC"),
        ("dgx-h100:2+fail=host0.nic9", "no node 'host0.nic9'.*did you mean host0.nic"),
        ("dgx-h100:2+fail=host0.gpu8", "there is no node 'host0.gpu8'"),
        ("dgx-h100:2+speed=leaf0", "must be A-B:SPEED, A>B:SPEED or A:SPEED"),
        ("dgx-h100:2+slow=leaf0:1GB/s", r"must be \\+fail=A-B .both directions., .* or \\+speed=NAME:SPEED"),
    ],
)
def test_boxes_that_cannot_be_are_refused(spec: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message.replace("\\\\", "\\")):
        load_topology(spec)


def test_a_speed_by_name_needs_a_unit() -> None:
    with pytest.raises(UnitError, match=r"\+speed=leaf0:4: .*needs a unit"):
        load_topology("dgx-h100:2+speed=leaf0:4")


@pytest.mark.parametrize(
    "spec", ["dgx-h100:9999999", "rails:1x999999", "nvlink:99999", "leafspine:9999x8@spines=65000"]
)
def test_too_many_boxes_are_refused_before_they_are_drawn(spec: str) -> None:
    with pytest.raises(LimitError):
        load_topology(spec)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a",), "1 names for 2 switches"),
        (("a", "a"), "two switches are called 'a'"),
        (("a", "s1"), "switch s1 cannot be called 's1'"),
        (("a", "host0.gpu1"), "cannot be called"),
        (("a", "b+c"), "cannot be called"),
    ],
)
def test_names_of_switches_are_checked(names: tuple[str, ...], problem: str) -> None:
    cables = [(0, 2), (1, 3), (2, 3)]
    with pytest.raises(TopologyError, match=problem):
        Topology.from_links("two", 2, 2, cables, bandwidth="1GB/s", latency="1us", switch_names=names)
