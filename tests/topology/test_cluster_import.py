"""Networks from one file and machines from another."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from weft.errors import InputError, WeftError
from weft.topology.cluster_fabric import ClusterOptions, share_out
from weft.topology.cluster_import import import_cluster
from weft.topology.load import read_topology

DATA = Path(__file__).parents[1] / "data" / "topology"
TREE, YAML, RAILS = (DATA / n for n in ("tree.slurm.conf", "several.slurm.yaml", "rails.ibnetdiscover.txt"))
GRAPH, DGX = DATA / "hgx.ncclgraph.xml", DATA / "dgx-a100.nccl.xml"
GB = 10**9
MUTATED = 150
"""Of each sample; tools/fuzz.py tries very many more."""


def test_boxes_of_a_spec_are_put_into_a_slurm_tree() -> None:
    found = import_cluster([TREE], boxes=["dgx-h100:1"], options=ClusterOptions(oversubscription=2))
    cluster = found.topology
    assert (cluster.ranks, cluster.switches) == (512, 5 + 64)
    assert cluster.hosts[1] == tuple(range(8, 16))
    speeds = {cluster.link_name(link): int(cluster.bandwidth[link]) for link in range(cluster.links)}
    assert speeds["0->s5"] == 450 * GB
    assert speeds["0->s0"] == 50 * GB
    assert speeds["s0->s4"] == 16 * 8 * 50 * GB // 2


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
    assert speeds["0->s0"] == speeds["2->s1"] == 48 * GB
    assert "1->s0" not in speeds
    with pytest.raises(InputError, match=r"node01 has 2 ports on the fabric, but .* has \d NICs"):
        import_cluster([RAILS], boxes=[str(DGX)])


def test_a_later_box_replaces_an_earlier_one_on_its_hosts() -> None:
    found = import_cluster([YAML], boxes=["dgx-h100:1", "node[07-08]=switch:4"])
    assert found.gpus == (8,) * 6 + (4,) * 2
    assert found.topology.ranks == 56
    with pytest.raises(InputError, match=r"--box 'node9': node9 are not in"):
        import_cluster([YAML], boxes=["node9=switch:4"])


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ([TREE, DGX], {}, "describes no network between machines; give a file .* with --box"),
        ([TREE, DATA / "block.slurm.conf"], {}, "are both of the kind topology.conf"),
        ([TREE], {"boxes": [str(RAILS)]}, "describes a network between machines; --box is for one machine"),
        ([TREE], {"boxes": ["dgx-h100:2"]}, "has 16 GPUs on 2 machines; --box is for one machine"),
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


@pytest.mark.parametrize(
    "sample",
    sorted(p for p in DATA.iterdir() if any(word in p.name for word in ("slurm", "ibnet", "ncclgraph"))),
    ids=lambda path: path.name,
)
def test_a_damaged_sample_is_a_topology_or_one_line_of_error(sample: Path) -> None:
    chance = random.Random(sample.name)
    whole = sample.read_bytes()
    taken = 0
    for _ in range(MUTATED):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 8, 60))] = chance.choice(
                (b"", b"[", b"]", b",", b"-", b" ", b"\n", b'"', b"9", b"99999", b"=", b"\xff", b"#", b":")
            )
        problem = ""
        try:
            read_topology(io.BytesIO(bytes(data)), "input")
        except WeftError as error:
            problem = str(error)
        assert "\n" not in problem
        taken += not problem
    assert 0 < taken < MUTATED
