"""Networks from one file and machines from another."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from support.damaged_files import FORMATS, READERS, SAMPLES, read_damaged

from weft.errors import InputError
from weft.topology.cluster_fabric import ClusterOptions, _usable_names, share_out
from weft.topology.cluster_import import import_cluster
from weft.topology.load import load_topology, parse_topology

DATA = Path(__file__).parents[1] / "data" / "topology"
TREE, YAML, RAILS = (DATA / n for n in ("tree.slurm.conf", "several.slurm.yaml", "rails.ibnetdiscover.txt"))
GRAPH, DGX = DATA / "hgx.ncclgraph.xml", DATA / "dgx-a100.nccl.xml"
GB = 10**9
MUTATED = 40
"""Of each sample; tools/fuzz.py tries very many more."""


def test_boxes_of_a_spec_are_put_into_a_slurm_tree() -> None:
    found = import_cluster([TREE], boxes=["dgx-h100:1"], options=ClusterOptions(oversubscription=2))
    cluster = found.topology
    assert (cluster.ranks, cluster.switches) == (512, 5 + 64)
    assert cluster.hosts[1] == tuple(range(8, 16))
    speeds = {cluster.link_name(link): int(cluster.bandwidth[link]) for link in range(cluster.links)}
    assert speeds["0->node001.nvswitch"] == 450 * GB
    assert speeds["0->leaf1"] == 50 * GB
    assert speeds["leaf1->core"] == 16 * 8 * 50 * GB // 2


def test_names_that_a_topology_cannot_have_are_changed() -> None:
    names = _usable_names(["leaf1", "s0", "12", "a, b+c", "a_ b>c", "", "leaf1", "leaf1"])
    assert names[:4] == ["leaf1", "switch-s0", "switch-12", "a_ b_c"]
    assert len(set(names)) == len(names)
    text = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4]\nSwitchName=s2 Switches=s[0-1]\n"
    assert parse_topology(text, "x").switch_names == ("switch-s0", "switch-s1", "switch-s2")


def test_nics_that_no_file_knows_come_from_options() -> None:
    options = ClusterOptions(nic_speed=25 * GB, nics=2)
    cluster = import_cluster([YAML], boxes=["switch:4@bw=100GB/s"], options=options).topology
    # Three switches of the network; each machine has one of its own, and two NICs that two GPUs share.
    assert (cluster.ranks, cluster.switches) == (32, 3 + 8 + 16)
    assert any("2 in each machine, 25GB/s each" in note for note in cluster.notes)


def test_slurm_says_which_machines_there_are_and_ibnetdiscover_how_they_are_cabled(tmp_path: Path) -> None:
    conf = tmp_path / "topology.conf"
    conf.write_text("SwitchName=all Nodes=node03,node[01-02]\n")
    found = import_cluster([conf, RAILS])
    assert found.nodes == ("node03", "node01", "node02")
    assert (found.topology.ranks, found.topology.switches) == (3, 3)
    conf.write_text("SwitchName=all Nodes=node[03-05]\n")
    with pytest.raises(InputError, match=r"node05 are not in .*which has node\[01-04\]"):
        import_cluster([conf, RAILS])


def test_topology_conf_is_not_used_beside_topology_yaml_as_in_slurm() -> None:
    found = import_cluster([TREE, YAML])
    assert found.topology.digest == import_cluster([YAML]).topology.digest
    assert any("Slurm ignores topology.conf where topology.yaml exists" in n for n in found.topology.notes)


def test_nodes_are_kept_in_the_given_order_and_unused_switches_are_dropped() -> None:
    found = import_cluster([TREE], nodes="node[017-018],node001")
    assert found.nodes == ("node017", "node018", "node001")
    assert found.topology.switches == 3
    with pytest.raises(InputError, match="node001 given twice"):
        import_cluster([TREE], nodes="node[001-002],node001")


def test_nics_of_a_dump_meet_the_ports_of_the_fabric() -> None:
    cluster = import_cluster([RAILS], boxes=[str(GRAPH)]).topology
    speeds = {cluster.link_name(link): int(cluster.bandwidth[link]) for link in range(cluster.links)}
    # The graph's NICs are of 48 GB/s and next to GPUs 0 and 2; the cables of 50 GB/s lead to two leaves.
    leaf, other = cluster.switch_names[:2]
    assert speeds[f"0->{leaf}"] == speeds[f"2->{other}"] == 48 * GB
    assert f"1->{leaf}" not in speeds
    with pytest.raises(InputError, match=r"node01 has 2 ports on the fabric, but .* has \d NICs"):
        import_cluster([RAILS], boxes=[str(DGX)])


TWO_NICS = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tNV4\tNV4\tSYS\tPXB\t0-31\t0
GPU1\tNV4\t X \tNV4\tNV4\tSYS\tPXB\t0-31\t0
GPU2\tNV4\tNV4\t X \tNV4\tPXB\tSYS\t32-63\t1
GPU3\tNV4\tNV4\tNV4\t X \tPXB\tSYS\t32-63\t1
"""


def test_nics_of_a_table_of_nvidia_smi_are_those_of_the_machine(tmp_path: Path) -> None:
    table = tmp_path / "node.txt"
    table.write_text(TWO_NICS)
    cluster = import_cluster([YAML], boxes=[str(table)], options=ClusterOptions(nic_speed=25 * GB)).topology
    assert (cluster.ranks, cluster.switches) == (32, 3 + 8 * 2)
    assert f"NICs: 2 in each machine, as {table} says, 25GB/s each (--nics, --nic-speed)" in cluster.notes
    ends = {cluster.link_name(link) for link in range(cluster.links)}
    assert {"2->node01.nic0", "3->node01.nic0", "0->node01.nic1", "1->node01.nic1"} <= ends
    assert "0->node01.nic0" not in ends
    # On a fabric that knows its ports, they are these NICs; with an option of its own there are as many.
    ports = import_cluster([RAILS], boxes=[str(table)]).topology
    assert "2->node01.nic0" in {ports.link_name(link) for link in range(ports.links)}
    four = import_cluster([YAML], boxes=[str(table)], options=ClusterOptions(nics=4)).topology
    assert four.switches == 3


def test_a_later_box_replaces_an_earlier_one_on_its_hosts() -> None:
    found = import_cluster([YAML], boxes=["dgx-h100:1", "node[07-08]=switch:4"])
    assert found.gpus == (8,) * 6 + (4,) * 2
    assert found.topology.ranks == 56
    with pytest.raises(InputError, match=r"--box 'node9': node9 are not in"):
        import_cluster([YAML], boxes=["node9=switch:4"])


@pytest.mark.parametrize("hosts", ["", "node[01-08]="], ids=["all", "by name"])
def test_a_box_with_effective_speeds_keeps_its_nics(hosts: str) -> None:
    boxes = [f"{hosts}{DGX}", f"{hosts}{DGX}@speed=effective"]
    nominal, effective = (import_cluster([YAML], boxes=[box]).topology for box in boxes)
    assert (effective.ranks, effective.links) == (nominal.ranks, nominal.links)
    assert effective.switch_names == nominal.switch_names
    assert effective.bandwidth.sum() < nominal.bandwidth.sum()
    said, unsaid = (set(topology.notes) for topology in (effective, nominal))
    assert {note.replace("effective", "nominal") for note in said} == unsaid


@pytest.mark.parametrize(
    ("box", "said"),
    [
        (f"{GRAPH}@speed=quick", "quick"),
        (f"{GRAPH}+fail=0-1", r"'\+fail=0-1' is not for the file of a box; write it behind the whole"),
        (f"{DATA / 'lab.toml'}@speed=effective", "leave @speed= out"),
        ("nothing.xml@speed=effective", "nothing.xml: no such file"),
    ],
)
def test_what_stands_wrongly_behind_the_file_of_a_box_is_refused(box: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        import_cluster([RAILS], boxes=[box])


def test_a_file_may_be_called_like_hosts_and_a_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node01=a.xml").write_bytes(GRAPH.read_bytes())
    for box in ("node01=a.xml", "node01=a.xml@speed=effective"):
        assert import_cluster([RAILS], boxes=[box]).gpus == (4,) * 4


def test_the_rating_of_a_file_many_times_may_stand_before_the_star() -> None:
    before, behind = load_topology(f"{GRAPH}@speed=effective*2"), load_topology(f"{GRAPH}*2@speed=effective")
    assert before.digest == behind.digest
    with pytest.raises(InputError, match="option 'speed' is given twice"):
        load_topology(f"{GRAPH}@speed=effective*2@speed=nominal")


def test_a_single_file_may_have_a_rating_or_changes_behind_it() -> None:
    effective = import_cluster([f"{DGX}@speed=effective"])
    assert effective.topology == load_topology(f"{DGX}@speed=effective")
    # Two cables join the leaf and the spine.
    broken = import_cluster([f"{RAILS}+fail=leaf1-spine1"], boxes=["nvlink:2"])
    assert broken.nodes == ("node01", "node02", "node03", "node04")
    assert broken.topology.links == import_cluster([RAILS], boxes=["nvlink:2"]).topology.links - 2 * 2


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ([f"{TREE}@speed=effective"], {}, "leave @speed= out"),
        ([f"{TREE}@speed=effective"], {"boxes": ["nvlink:2"]}, "'@speed=effective' behind .*: leave it out"),
        ([TREE, f"{RAILS}+fail=leaf1-spine1"], {}, r"'\+fail=leaf1-spine1' behind .*: leave it out"),
        ([TREE, DGX], {}, "describes no network between machines; give a file .* with --box"),
        ([TREE, DATA / "block.slurm.conf"], {}, "are both of the kind topology.conf"),
        ([TREE], {"boxes": [str(RAILS)]}, "describes a network between machines; a box is one machine"),
        ([TREE], {"boxes": ["dgx-h100:2"]}, "has 16 GPUs on 2 machines; a box is one machine"),
        ([TREE], {"wanted": "x"}, "only a topology.yaml has several"),
        ([], {}, "nothing to import"),
    ],
)
def test_files_that_do_not_fit_are_refused(files: list[Path], options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        import_cluster(files, **options)  # type: ignore[arg-type]


def test_a_file_of_one_machine_alone_is_read_as_it_is() -> None:
    found = import_cluster([DGX])
    assert (found.topology.ranks, found.nodes) == (8, ())


@pytest.mark.parametrize("gpus", range(1, 10))
@pytest.mark.parametrize("nics", range(1, 10))
def test_gpus_and_nics_are_shared_out_evenly(gpus: int, nics: int) -> None:
    shares = share_out(range(gpus), nics)
    assert len(shares) == nics
    assert {gpu for share in shares for gpu in share} == set(range(gpus))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_every_sample_names_the_public_one_that_it_follows(sample: Path) -> None:
    if sample.suffix == ".toml":
        return  # the form is Weft's own
    text = sample.read_text("utf-8")
    assert re.search(
        r"Written by hand.*(https://\S+|rdma-core: \S+|NVIDIA/nccl, \S+|Azure's NCv4 images)", text
    ), f"{sample.name} names no source"


def outcomes(sample: Path, count: int, file: Path) -> Counter[str]:
    """How often a damaged sample was taken and refused, in each way; fails for anything else."""
    found = Counter[str]()
    for reading in read_damaged(sample, count, file, random.Random(sample.name)):
        assert reading.outcome != "finding", f"{reading.way}: {reading.said!r}"
        found[f"{reading.way}, {reading.outcome}"] += 1
    return found


def test_every_import_has_samples_to_damage() -> None:
    for ending in FORMATS.values():
        assert any(sample.name.endswith(ending) for sample in SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_damaged_sample_is_a_topology_or_one_line_of_error(sample: Path, tmp_path: Path) -> None:
    found = outcomes(sample, MUTATED, tmp_path / "input")
    assert 0 < found["alone, taken"] < MUTATED
    assert found["merged, taken"] + found["merged, refused"] == MUTATED


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_ten_thousand_damaged_samples_are_topologies_or_one_line_of_error(
    sample: Path, tmp_path: Path
) -> None:
    found = outcomes(sample, 10_000, tmp_path / "input")
    print(sample.name, dict(found))
    assert all(found[f"{kind}, taken"] + found[f"{kind}, refused"] == 10_000 for kind in READERS)
