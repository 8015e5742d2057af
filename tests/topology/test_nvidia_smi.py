"""The table of ``nvidia-smi topo -m``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FormatError, TopologyError, WeftError
from weft.topology import Topology, load_topology
from weft.topology.nvidia_smi import parse_nvidia_smi

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9


def table(*rows: str, numa: str = "") -> str:
    """Text of a table; each row is the entries of one GPU."""
    head = "\t" + "\t".join(f"GPU{index}" for index in range(len(rows)))
    lines = [head + ("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" if numa else "")]
    for index, row in enumerate(rows):
        end = f"\t0-{index}\t{numa[index]}\t\tN/A" if numa else ""
        lines.append(f"GPU{index}\t" + "\t".join(row.split()) + end)
    return "\n".join(lines) + "\n"


def wires(topology: Topology) -> dict[str, int]:
    return {topology.link_name(link): int(topology.bandwidth[link]) for link in range(topology.links)}


def test_eighteen_links_to_everyone_are_an_nvswitch() -> None:
    box = load_topology(DATA / "h100.nvidia-smi.txt")
    assert (box.ranks, box.switches, box.links) == (8, 1, 16)
    assert set(box.bandwidth.tolist()) == {450 * GB}
    assert box.hosts == (tuple(range(8)),)
    assert box.name == "h100.nvidia-smi"


def test_what_was_assumed_is_said() -> None:
    assert load_topology(DATA / "h100.nvidia-smi.txt").notes == (
        "nominal speed of each direction: one NVLink 25GB/s, PCIe 63GB/s, between CPUs 16GB/s",
        "GPUs 0, 1, 2, 3, 4, 5, 6, 7 are on an NVSwitch: cables to all others would be too many",
        "PCIe, CPUs and NICs are left out: NVLink joins all GPUs",
        "latency of a link: NVLink 500ns",
    )


def test_uneven_links_are_cables() -> None:
    box = load_topology(DATA / "dgx1.nvidia-smi.txt")
    assert (box.ranks, box.switches, box.links) == (8, 0, 32)
    assert wires(box)["0->1"] == 25 * GB
    assert wires(box)["0->3"] == 50 * GB
    assert Counter(len(near) for near in box.neighbours) == {4: 8}


def test_pairs_with_bridges_keep_pcie_between_them() -> None:
    box = load_topology(DATA / "bridges.nvidia-smi.txt")
    assert (box.ranks, box.switches, box.links) == (8, 2, 26)
    found = wires(box)
    assert found["0->1"] == 100 * GB
    assert found["0->s0"] == found["s1->7"] == 31.5 * GB
    assert found["s0->s1"] == 16 * GB
    assert box.route(0, 1) == box.links_between(0, 1)
    assert len(box.route(0, 7)) == 3


@pytest.mark.parametrize(
    ("gpus", "links", "switches"),
    [(2, 18, 0), (4, 4, 0), (4, 6, 0), (4, 12, 1), (8, 2, 0), (8, 12, 1), (16, 6, 1), (3, 9, 0), (3, 18, 1)],
)
def test_an_nvswitch_is_where_a_gpu_would_need_more_than_eighteen_links(
    gpus: int, links: int, switches: int
) -> None:
    rows = [" ".join("X" if a == b else f"NV{links}" for b in range(gpus)) for a in range(gpus)]
    box = parse_nvidia_smi(table(*rows), "x.txt")
    assert box.switches == switches
    assert set(box.bandwidth.tolist()) == {25 * GB * links}
    assert box.links == (2 * gpus if switches else gpus * (gpus - 1))


def test_a_gpu_that_lost_links_to_the_nvswitch_has_a_slower_cable() -> None:
    box = parse_nvidia_smi(
        table("X NV18 NV18 NV12", "NV18 X NV18 NV12", "NV18 NV18 X NV12", "NV12 NV12 NV12 X"), "x"
    )
    assert (box.switches, box.egress(0), box.egress(3)) == (1, 450 * GB, 300 * GB)


def test_pcie_is_a_tree() -> None:
    box = parse_nvidia_smi(
        table(
            "X PIX PXB PXB NODE SYS",
            "PIX X PXB PXB NODE SYS",
            "PXB PXB X PIX NODE SYS",
            "PXB PXB PIX X NODE SYS",
            "NODE NODE NODE NODE X SYS",
            "SYS SYS SYS SYS SYS X",
        ),
        "x.txt",
    )
    assert len(box.route(0, 1)) == 2
    assert len(box.route(0, 2)) == 4
    assert len(box.route(0, 4)) == 4
    assert len(box.route(0, 5)) == 4
    assert sorted(set(box.bandwidth.tolist())) == [16 * GB, 31_500_000_000]


def test_gpus_of_one_numa_node_share_its_cpu() -> None:
    rows = [" ".join("X" if a == b else "SYS" for b in range(4)) for a in range(4)]
    apart, grouped = parse_nvidia_smi(table(*rows), "x"), parse_nvidia_smi(table(*rows, numa="0011"), "x")
    assert apart.switches == 4
    assert grouped.switches == 2
    assert wires(grouped)["s0->s1"] == 16 * GB


def test_old_names_and_colours_are_understood() -> None:
    old = "\x1b[4m\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\x1b[0m\n"
    old += "GPU0\t X \tSOC\tPIX\t0-9\nGPU1\tSOC\t X \tPHB\t10-19\n"
    box = parse_nvidia_smi(old, "x.txt")
    assert (box.ranks, box.links) == (2, 2)
    assert box.bandwidth.tolist() == [16 * GB, 16 * GB]


def test_nic_columns_that_ran_together_do_not_matter() -> None:
    text = "  GPU0 GPU1 NIC0NIC1 CPU Affinity\nGPU0 X NV4 PIXSYS 0-3\nGPU1 NV4 X SYSPIX 0-3\nNIC0 PIX SYS X\n"
    assert wires(parse_nvidia_smi(text, "x.txt")) == {"0->1": 100 * GB, "1->0": 100 * GB}


@pytest.mark.parametrize(
    "above",
    ["$ nvidia-smi topo -m\n\n", "[root@node1 ~]# nvidia-smi topo -m\r\n", "# node1\n" * 900],
    ids=["prompt", "long prompt", "many lines"],
)
def test_lines_above_the_table_such_as_a_shell_prompt_do_not_matter(above: str, tmp_path: Path) -> None:
    file = tmp_path / "node.txt"
    rows = table("X PIX", "PIX X")
    file.write_text(rows)
    alone = load_topology(file)
    file.write_text(above + rows)
    assert load_topology(file) == alone
    assert load_topology(f"{file}*2@nic=10GB/s").ranks == 4


def test_a_table_below_a_thousand_other_lines_is_not_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "node.txt"
    file.write_text("# line\n" * 1000 + table("X PIX", "PIX X"))
    with pytest.raises(FormatError, match="line 1001: not TOML"):
        load_topology(file)


def test_a_file_of_another_format_with_a_line_that_begins_with_gpu0_keeps_its_own_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("ranks = 2\nGPU0 = 1\n")
    with pytest.raises(FormatError, match="GPU0"):
        load_topology(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.txt: no line starts with GPU0; expected the table of nvidia-smi topo -m"),
        ("hello\n", "no line starts with GPU0"),
        ("GPU0 GPU1\n", "x.txt: line 2: expected the row of GPU0 of 2 GPUs"),
        ("GPU0 GPU1\nGPU0 X NV4\n", "x.txt: line 3: expected the row of GPU1 of 2 GPUs"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 NV4 X\n", "x.txt: line 2: GPU0 has 1 entries for 2 GPUs"),
        (table("X PIX", "PIX Y"), "x.txt: line 3: GPU1 to itself should be X, not 'Y'"),
        (table("X ABC", "ABC X"), "x.txt: line 2: GPU0 to GPU1: 'ABC' is unknown, expected NV#, PIX"),
        (table("X NV0", "NV0 X"), "x.txt: line 2: GPU0 to GPU1: 'NV0' is unknown"),
        (table("X NV4", "NV8 X"), "x.txt: line 3: GPU1 to GPU0 is NV8, but the other way NV4"),
        (" ".join(f"GPU{index}" for index in range(300)), "x.txt: line 1: 300 GPUs are more than the 256"),
        ("\n" * 2_000_000, "no line starts with GPU0"),
        ("x" * 10_000_000, "no line starts with GPU0"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_nvidia_smi(text, "x.txt")
    assert message in str(caught.value)


def test_one_gpu_is_no_cluster() -> None:
    with pytest.raises(TopologyError, match="a cluster of 1 rank has nothing to reduce"):
        parse_nvidia_smi(table("X"), "x.txt")


@given(st.integers(2, 7), st.data())
def test_any_symmetric_table_is_a_connected_machine(gpus: int, data: st.DataObject) -> None:
    words = st.sampled_from(["NV1", "NV4", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS"])
    entries = [["X"] * gpus for _ in range(gpus)]
    for a in range(gpus):
        for b in range(a):
            entries[a][b] = entries[b][a] = data.draw(words)
    box = parse_nvidia_smi(table(*(" ".join(row) for row in entries)), "x.txt")
    assert box.ranks == gpus
    for a in range(gpus):
        for b in range(a):
            if entries[a][b].startswith("NV") and box.links_between(a, b):
                assert box.egress(a) >= 25 * GB


@given(st.text(alphabet="GPU01 XNVSY\t\n\x1b[4m", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(WeftError):
        parse_nvidia_smi(f"GPU0 {text}", "x.txt")
