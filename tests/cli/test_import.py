"""``weft import``: files of a scheduler, a fabric and machines become one topology file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from cli.running import Run

from weft.topology import load_topology

DATA = Path(__file__).parents[1] / "data" / "topology"
TREE = str(DATA / "tree.slurm.conf")


def test_a_slurm_cluster_of_64_nodes_is_compared_planned_and_drawn(weft: Run, tmp_path: Path) -> None:
    toml, svg, plan = (str(tmp_path / name) for name in ("cluster.toml", "cluster.svg", "plan.weft"))
    outcome = weft("import", TREE, "-o", toml, "--svg", svg)
    assert outcome.code == 0
    assert "64: node[001-064]" in outcome.out
    assert f"wrote {toml}, {svg}" in outcome.out
    assert (load_topology(toml).ranks, load_topology(toml).name) == (64, "cluster")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    compared = weft(
        "compare", toml, "--size", "64MiB", "--algorithm", "ring", "--algorithm", "hierarchical", "--json"
    )
    results = compared.document["results"]
    assert [result["verified"] for result in results] == [True, True]
    planned = weft("plan", toml, "--size", "1MiB", "--algorithm", "ring", "-o", plan)
    assert planned.code == 0
    assert Path(plan).stat().st_size > 0


def test_a_file_of_slurm_is_a_topology_wherever_one_is_taken(weft: Run) -> None:
    outcome = weft("compare", TREE, "--size", "1MiB", "--algorithm", "ring", "--json")
    assert outcome.code == 0
    assert outcome.document["results"][0]["verified"] is True


def test_json_says_which_machine_each_rank_is_on(weft: Run) -> None:
    found = weft("import", str(DATA / "several.slurm.yaml"), "--box", "switch:4", "--json").document
    assert found["machines"][1] == {"name": "node02", "ranks": [4, 5, 6, 7]}
    assert found["ranks"] == 32
    assert any("--nic-speed" in note for note in found["assumptions"])


def test_assumptions_are_said_aloud_and_options_change_them(weft: Run) -> None:
    outcome = weft("import", TREE, "--nic-speed", "25GB/s", "--oversubscription", "4", "--latency", "600ns")
    for said in ("25GB/s each", "over 4", "600ns", "nothing was written"):
        assert said in outcome.out


def test_the_topology_goes_to_standard_output_alone(weft: Run) -> None:
    outcome = weft("import", TREE, "-o", "-")
    assert outcome.code == 0
    written = tomllib.loads(outcome.out)
    assert (written["ranks"], written["switches"]) == (64, 5)


def test_bad_use_is_one_line_and_exit_code_2(weft: Run) -> None:
    for words in (
        ("import", TREE, "--nic-speed", "4"),
        ("import", TREE, "--oversubscription", "0"),
        ("import", TREE, "--box", "nothing.xml"),
        ("import", TREE, "--nodes", "node[9-1]"),
        ("import", "-", "-"),
        ("import", TREE, str(DATA / "dgx-a100.nccl.xml")),
    ):
        outcome = weft(*words)
        assert outcome.code == 2, words
        assert outcome.err.startswith("weft: error: ")
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("option", ["-o", "--svg"])
def test_an_output_is_never_an_input(weft: Run, tmp_path: Path, option: str) -> None:
    given, linked, box = (tmp_path / name for name in ("g.conf", "link.conf", "box.toml"))
    given.write_bytes(Path(TREE).read_bytes())
    linked.symlink_to(given)
    assert weft("topology", "switch:4", "--toml", str(box)).code == 0
    before = given.read_bytes(), box.read_bytes()
    for words in (
        ("import", str(given), option, str(given)),
        ("import", str(given), option, str(linked)),
        ("import", f"{linked}+speed=leaf1-core:1GB/s", option, str(given)),
        ("import", str(given), "--box", str(box), option, str(box)),
        ("import", str(given), "--box", f"node[001-002]={box}", option, str(box)),
        ("import", f"{box}*4", option, str(box)),
    ):
        outcome = weft(*words)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1), words
        assert "is also an input" in outcome.err
    assert (given.read_bytes(), box.read_bytes()) == before


def test_no_command_that_reads_a_file_and_writes_one_takes_it_for_both(weft: Run, tmp_path: Path) -> None:
    toml, ring = (str(tmp_path / name) for name in ("t.toml", "ring.weft"))
    assert weft("topology", "ring:4", "--toml", toml).code == 0
    assert weft("export", "ring:4", "--algorithm", "ring", "-o", ring).code == 0
    for words in (
        ("topology", toml, "--toml", toml),
        ("topology", toml, "--svg", toml),
        ("topology", toml, "--report", toml),
        ("report", ring, "-o", ring),
        ("export", ring, "-o", ring),
    ):
        outcome = weft(*words)
        assert outcome.code == 2, words
        assert "is also an input" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--box", ""), "--box '': names no machine; give a file or spec of one, such as dgx-h100:1"),
        (("--box", "node001="), "--box 'node001=': names no machine; give a file or spec of one"),
        (("--box", "torus:4x4x4x4x4x4"), "torus:4x4x4x4x4x4: has 4,096 GPUs; one machine has 256 at most"),
        (("",), "the name of a file is empty; give a file name, or - for standard input"),
    ],
)
def test_what_is_wrong_with_a_box_is_said_with_a_way_out(
    weft: Run, words: tuple[str, ...], said: str
) -> None:
    outcome = weft("import", TREE, *words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert said in outcome.err


@pytest.mark.parametrize(
    "spec",
    ["dgx-h100:2+fail=host0.nic5", "leafspine:16x8@oversub=3", "tpu-v4:4x4x4", "dragonfly:9,4,2"],
    ids=["rails with a dead NIC", "leafspine", "torus", "dragonfly"],
)
def test_a_cluster_of_one_line_is_compared_planned_and_drawn(weft: Run, tmp_path: Path, spec: str) -> None:
    svg, plan = (str(tmp_path / name) for name in ("cluster.svg", "plan.weft"))
    algorithms = ("--algorithm", "ring", "--algorithm", "halving_doubling")
    compared = weft("compare", spec, "--size", "1MiB", *algorithms, "--segment", "none", "--json")
    assert compared.code == 0
    assert [result["verified"] for result in compared.document["results"]] == [True] * 2
    planned = weft("plan", spec, "--size", "1MiB", "--time-limit", "1s", "-o", plan, "--json")
    assert planned.code == 0
    assert planned.document["topology"] == spec
    assert Path(plan).stat().st_size > 0
    assert weft("topology", spec, "--svg", svg).code == 0
    assert ET.parse(svg).getroot().tag.endswith("svg")
