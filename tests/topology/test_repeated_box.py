"""One machine's file or spec, many times, on a fabric."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import weft
from weft.cli import main
from weft.errors import InputError
from weft.topology import load_topology
from weft.topology.cluster_import import import_cluster
from weft.topology.repeated_box import split_repeated
from weft.topology.toml_file import format_toml

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9


def h100_dump(nics: str = "400000") -> str:
    """A box of eight H100 as NCCL writes it, each GPU and a NIC on one PCIe switch; the last GPU first."""
    pcie = 'link_speed="32.0 GT/s PCIe" link_width="16"'
    switches = [
        f'<pci busid="0000:{n}0:00.0" class="0x060400" {pcie}>'
        f'<pci busid="0000:{n}1:00.0" class="0x030200" {pcie}><gpu dev="{n}" sm="90" rank="{n}">'
        '<nvlink target="0000:c4:00.0" count="18" tclass="0x068000"/></gpu></pci>'
        f'<pci busid="0000:{n}2:00.0" class="0x020700" {pcie}><nic>'
        f'<net name="mlx5_{n}" dev="{n}" speed="{nics if n == 7 else "400000"}" port="1"/></nic></pci></pci>'
        for n in reversed(range(8))
    ]
    head = '<cpu numaid="{}" host_hash="0x1" arch="x86_64" vendor="GenuineIntel">'
    halves = "".join(f"{head.format(half)}{''.join(switches[4 * half :][:4])}</cpu>" for half in range(2))
    return f'<system version="1">{halves}</system>'


def h100_table() -> str:
    """The same box as ``nvidia-smi topo -m`` prints it."""
    parts = [f"GPU{n}" for n in range(8)] + [f"NIC{n}" for n in range(8)]
    rows = ["\t" + "\t".join([*parts, "CPU Affinity", "NUMA Affinity"])]
    for a in range(8):
        cells = ["X" if b == a else "NV18" for b in range(8)]
        cells += ["PIX" if b == a else "NODE" if b // 4 == a // 4 else "SYS" for b in range(8)]
        rows.append("\t".join([f"GPU{a}", *cells, "0-55", str(a // 4)]))
    return "\n".join(rows) + "\n"


@pytest.fixture
def h100_files(tmp_path: Path) -> list[Path]:
    texts = {"box.xml": h100_dump(), "box.txt": h100_table()}
    texts["box.toml"] = format_toml(load_topology("dgx-h100:1"))
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    return [tmp_path / name for name in texts]


@pytest.mark.parametrize(
    ("count", "behind"),
    [
        (2, ""),
        (2, "+fail=host0.nic5"),
        (4, "@fabric=rails,spines=2,oversub=3"),
        (4, "@fabric=leafspine,per_leaf=1,oversub=2,routing=ecmp,seed=3"),
        (4, "@fabric=threetier,per_leaf=1+speed=leaf0-spine0:10GB/s"),
    ],
)
def test_the_file_of_a_presets_box_gives_the_preset(h100_files: list[Path], count: int, behind: str) -> None:
    preset = load_topology(f"dgx-h100:{count}{behind}")
    for box in ("dgx-h100:1", *h100_files):
        found = load_topology(f"{box}*{count}{behind}")
        assert (found.digest, found.switch_names) == (preset.digest, preset.switch_names), box


def test_effective_speeds_are_those_of_the_preset(h100_files: list[Path]) -> None:
    preset = load_topology("dgx-h100:2@speed=effective")
    for box in ("dgx-h100:1", *h100_files[:2]):
        assert load_topology(f"{box}*2@speed=effective").digest == preset.digest, box


def test_a_dump_whose_gpus_share_pcie_switches_gives_the_preset() -> None:
    dump = DATA / "dgx-a100.nccl.xml"
    assert load_topology(f"{dump}*3@spines=2").digest == load_topology("dgx-a100:3@spines=2").digest


def test_one_box_has_no_network(h100_files: list[Path]) -> None:
    for box in h100_files:
        assert load_topology(f"{box}*1").digest == load_topology(box).digest


def test_a_box_of_another_kind_of_spec_gets_nics_for_its_gpus() -> None:
    assert load_topology("nvlink:8*4@oversub=2").digest == load_topology("rails:4x8@oversub=2").digest
    mesh = load_topology("fullmesh:4*3@fabric=leafspine,nics=2,nic=10GB/s,pcie=20GB/s")
    assert mesh.hosts == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    speeds = {mesh.link_name(link): int(mesh.bandwidth[link]) for link in range(mesh.links)}
    assert speeds["0->1"] == 25 * GB
    assert speeds["5->host1.pcie0"] == speeds["host1.pcie0->host1.nic0"] == 20 * GB
    assert speeds["host2.nic1->leaf0"] == 10 * GB
    assert mesh.notes == ("NICs: 2 in each machine, 10GB/s each, PCIe 20GB/s (nics=, nic=, pcie=)",)


def test_nics_of_a_toml_file_are_the_switches_called_so(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    cable = '[[links]]\nsrc = {}\ndst = {}\nbandwidth = "{}GB/s"\nlatency = "1us"\nduplex = true\n'
    ends = ((0, '"sw"', 40), (1, '"sw"', 40), ('"sw"', '"nic1"', 20), ('"sw"', '"nic0"', 20))
    head = 'ranks = 2\nswitches = 3\nswitch_names = ["nic1", "sw", "nic0"]\n'
    path.write_text(head + "".join(cable.format(*end) for end in ends), "utf-8")
    found = load_topology(f"{path}*2@nic=5GB/s")
    assert found.name == "node*2@nic=5GB/s"
    names = {found.link_name(link) for link in range(found.links)}
    assert {"0->host0.sw", "host1.nic0->leaf0", "host1.nic1->leaf1", "host0.sw->host0.nic1"} <= names
    assert "host0.nic0->leaf1" not in names


def test_a_nic_that_only_cpus_reach_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    port = '<nic><net name="eth0" speed="100000"/></nic>'
    spare = (
        f'<pci busid="0000:f0:00.0" class="0x020000" link_speed="8.0 GT/s PCIe" link_width="16">{port}</pci>'
    )
    text = h100_dump().replace('<nic><net name="mlx5_7"', '<nic><none name="mlx5_7"')
    path.write_text(text.replace("</cpu></system>", f"{spare}</cpu></system>"), "utf-8")
    found = load_topology(f"{path}*2@nic=50GB/s")
    assert "host0.cpu0" in found.switch_names
    assert sum(name.startswith("host0.nic") for name in found.switch_names) == 8


def test_ports_of_one_card_share_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    net = '<net name="mlx5_3" dev="3" speed="400000" port="1"/>'
    path.write_text(h100_dump().replace(net, net + net.replace("mlx5_3", "mlx5_8")), "utf-8")
    found = load_topology(f"{path}*2")
    slots = [
        {found.node_name(node) for node in found.neighbours[found.parse_node(f"host1.pcie{number}")]}
        for number in range(8)
    ]
    assert sorted(len(slot) for slot in slots) == [2] * 7 + [3], "one switch has a GPU and two NICs"
    assert {"11", "host1.nic3", "host1.nic4"} in slots


def test_a_flat_fabric_has_a_cable_for_each_gpu(h100_files: list[Path]) -> None:
    for box in h100_files:
        flat = load_topology(f"{box}*2@fabric=flat,nic=50GB/s")
        assert (flat.ranks, flat.switches, flat.links) == (16, 3, 64)
        assert flat.switch_names[-1] == "leaf0"


def test_machines_of_one_gpu_may_be_multiplied(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("\tGPU0\tNIC0\nGPU0\tX\tPIX\n", "utf-8")
    found = load_topology(f"{path}*4@nic=10GB/s")
    assert (found.ranks, len(found.hosts)) == (4, 4)
    assert "host3.nic0" in found.switch_names
    with pytest.raises(InputError, match="one box with one GPU is no network"):
        load_topology(f"{path}*1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nosuch.xml*4", "nosuch.xml: no such file"),
        ("dgx-h100:2*4", "dgx-h100:2 is 2 boxes; what stands before the [*] is one box"),
        (f"{DATA}/lab.toml*4", "has 4 GPUs on 2 machines; a box is one machine"),
        (f"{DATA}/tree.slurm.conf*4", "describes a network between machines; a box is one machine"),
        (f"{DATA}/dgx-a100.nccl.xml*4@nics=4", "says how its NICs are cabled; leave nics out"),
        (f"{DATA}/dgx-a100.nccl.xml*0", "0 boxes; give at least 1"),
        (f"{DATA}/dgx-a100.nccl.xml*999999999", "ranks: 7,999,999,992 is more than the 65,536"),
        (f"{DATA}/dgx-a100.nccl.xml*10000000000", "ranks: 80,000,000,000 is more than the 65,536"),
        (f"{DATA}/dgx-a100.nccl.xml@nics=2", "machines on a fabric: .*dgx-a100.nccl.xml\\*2@nics=2"),
        (f"{DATA}/dgx-a100.nccl.xml*4@fabric=ring", "fabric=ring is unknown, expected rails or leafspine"),
        (f"{DATA}/dgx-a100.nccl.xml*4@oversubb=2", "unknown option 'oversubb' .* did you mean oversub"),
        (f"{DATA}/dgx-a100.nccl.xml*4@fabric=flat,pcie=4GB/s", "flat has no PCIe, so pcie has no meaning"),
        (f"{DATA}/dgx-a100.nccl.xml*4+sped=1", r"'\+sped=1' must be \+fail=A-B"),
        (f"{DATA}/dgx-a100.nccl.xml*1@spines=2", "one box alone has no network, so spines has no meaning"),
        ("dgx-h100:1@nics=4*4@nics=4", "option 'nics' is given twice, before and behind the [*]"),
        ("dgx-h100:1*4@spinse=4", "unknown option 'spinse' for dgx-h100 on a fabric; did you mean spines"),
        ("nvlink:8*4@spinse=4", "unknown option 'spinse' for nvlink on a fabric; did you mean spines"),
        ("ring:4" + "*1" * 900, "several [*]; what stands before the last one is one box"),
        ("ring:4*3@nics=3", "4 GPUs do not divide evenly by 3 PCIe switches; give hubs= or nics="),
        ("x.xml*4@" + "a" * 5000, "5,008 characters are too many"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        load_topology(text)


def test_nics_of_different_speeds_need_one(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    path.write_text(h100_dump(nics="100000"), "utf-8")
    with pytest.raises(
        InputError, match=r"has NICs of 12\.5GB/s and 50GB/s; give nic= with one speed for all"
    ):
        load_topology(f"{path}*2")
    assert load_topology(f"{path}*2@nic=50GB/s").digest == load_topology("dgx-h100:2").digest


def test_a_file_whose_name_has_a_star_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lab*2"
    path.write_text(format_toml(load_topology("ring:3")), "utf-8")
    assert load_topology(str(path)).ranks == 3
    assert load_topology(f"{path}+fail=0-1").links == 4
    assert split_repeated(str(path)) is None
    assert split_repeated("ring:8@links=2+fail=0-1*1") is None


def test_every_command_takes_a_box_and_a_count(
    h100_files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = f"{h100_files[0]}*2@fabric=rails", tmp_path / "cluster.toml"
    few = ["--size", "1MiB", "--algorithm", "ring"]
    assert main(["import", spec, "-o", str(out)]) == 0
    assert load_topology(out).digest == load_topology("dgx-h100:2").digest
    assert main(["compare", spec, *few]) == 0
    assert main(["plan", spec, *few, "-o", str(tmp_path / "p.weft")]) == 0
    assert main(["train", spec, "--model", "resnet50", "--algorithm", "ring"]) == 0
    assert main(["simulate", spec, *few]) == 0
    assert "box*2@fabric=rails" in capsys.readouterr().out
    assert main(["simulate", spec, "--size", "1MiB"]) == 2
    assert "is a topology; give --algorithm" in capsys.readouterr().err
    assert import_cluster([spec]).topology.ranks == weft.load_topology(spec).ranks


def test_a_box_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(h100_dump().encode())))
    assert load_topology("-*2").digest == load_topology("dgx-h100:2").digest
