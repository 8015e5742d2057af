"""Slurm's topology.conf and topology.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import DisconnectedError, FormatError, InputError, LimitError, WeftError
from weft.topology import load_topology
from weft.topology.block_yaml import read_yaml
from weft.topology.load import parse_topology
from weft.topology.slurm import parse_slurm_conf, parse_slurm_yaml

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9
TREE = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=top Switches=a,b\n"


def test_a_tree_of_64_nodes_has_its_leaves_below_one_core() -> None:
    cluster = load_topology(DATA / "tree.slurm.conf")
    assert (cluster.ranks, cluster.switches, cluster.links) == (64, 5, 136)
    assert [len(group) for group in cluster.groups] == [16] * 4
    speeds = {cluster.link_name(link): int(cluster.bandwidth[link]) for link in range(cluster.links)}
    assert speeds["0->leaf1"] == 50 * GB
    assert speeds["leaf1->core"] == speeds["core->leaf1"] == 16 * 50 * GB


def test_everything_that_a_tree_does_not_say_is_noted() -> None:
    notes = " ".join(load_topology(DATA / "tree.slurm.conf").notes)
    for said in ("one rank", "50GB/s", "over 1", "1us", "LinkSpeed is in arbitrary units"):
        assert said in notes


def test_blocks_are_switches_on_one_core() -> None:
    cluster = load_topology(DATA / "block.slurm.conf")
    assert (cluster.ranks, cluster.switches) == (36, 3)
    assert [len(group) for group in cluster.groups] == [18, 18]
    assert any("a block is a switch" in note for note in cluster.notes)


def test_of_several_topologies_the_default_is_read_unless_another_is_named() -> None:
    text = (DATA / "several.slurm.yaml").read_text("utf-8")
    fabric = parse_slurm_yaml(text, "topology.yaml")
    assert (fabric.switches, len(fabric.nodes)) == (("sw_root", "s1", "s2"), 8)
    assert parse_slurm_yaml(text, "topology.yaml", "racks").switches == ("b1", "b2", "core of all blocks")
    with pytest.raises(InputError, match=r"no topology in topology.yaml 'rack'; did you mean racks"):
        parse_slurm_yaml(text, "topology.yaml", "rack")
    with pytest.raises(FormatError, match="'none' has flat; Weft reads tree or block"):
        parse_slurm_yaml(text, "topology.yaml", "none")


def test_both_forms_of_one_tree_are_the_same_network() -> None:
    yaml = "- topology: t\n  tree:\n    switches:\n    - {}\n".replace(
        "    - {}\n",
        "    - switch: a\n      nodes: n[1-2]\n    - switch: b\n      nodes: n[3-4]\n"
        "    - switch: top\n      children: [a, b]\n",
    )
    assert parse_topology(yaml, "x").digest == parse_topology(TREE, "x").digest


def test_a_list_of_yaml_that_holds_more_than_names_is_refused() -> None:
    text = "- topology: t\n  tree:\n    switches:\n    - switch: a\n      nodes:\n      - n1\n      - x: n2\n"
    with pytest.raises(FormatError, match="nodes must be a hostlist"):
        parse_slurm_yaml(text, "t.yaml")


def test_uplinks_are_shared_out_over_several_switches_above() -> None:
    spines = TREE.replace("SwitchName=top", "SwitchName=top[1-2]")
    cluster = parse_topology(spines, "spines")
    speeds = {cluster.link_name(link): int(cluster.bandwidth[link]) for link in range(cluster.links)}
    assert speeds["a->top1"] == speeds["a->top2"] == 50 * GB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2", "line 2: node n2 is on a and b"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "a described twice"),
        ("SwitchName=a Switches=b", "line 1: switch 'b' below a is not described"),
        ("SwitchName=a Switches=a Nodes=n1", "below itself"),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "both a tree and blocks"),
        ("SwitchName=a Node=n1", "node: expected SwitchName="),
        ("SwitchName=a Nodes=n1 oops", "'oops' is not understood"),
        ("SwitchName=a Nodes=n1 Nodes=n2", "each key once"),
        ("SwitchName=a Nodes=n1\nInclude other.conf", "line 2: .*Weft follows no Include"),
        ("SwitchName=a", "names no nodes"),
        ("BlockSizes=4", "no switch and no block"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=x Switches=y,a\nSwitchName=y Switches=x", "above itself"),
    ],
)
def test_a_tree_that_cannot_be_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(WeftError, match=said) as caught:
        parse_topology(text, "topology.conf")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("topology.conf")


def test_switches_without_a_common_switch_above_cannot_reach_each_other() -> None:
    with pytest.raises(DisconnectedError, match="rank 0 cannot reach rank 2"):
        parse_topology("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]", "split.conf")


def test_a_file_of_very_many_nodes_is_refused() -> None:
    lines = "\n".join(f"SwitchName=s{n} Nodes=s{n}n[1-60000]" for n in range(3))
    with pytest.raises(LimitError, match="machines"):
        parse_slurm_conf(lines, "big.conf")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- topology: a\n\ttree: x", "line 2: a tab"),
        ("- &x topology: a", "anchors"),
        ("- topology: &a b", "anchors"),
        ("- topology: !!str b", "anchors"),
        ("- topology: |\n    b", "anchors"),
        ("- topology: {a: b}", "anchors"),
        ("- topology: a\n  topology: b", "twice"),
        ("- topology: 'a", "quotes"),
        ("- topology: [a", "must end on its line"),
        ("- a: b\n   c: d", "indented as those above"),
        ("  - a: b\n- c: d", "indented less"),
        ("# nothing", "nothing but comments"),
        ("- " * 80 + "x", "nested deeper than 64"),
        ("- tree: " + "[" * 100_000 + "]" * 100_000, "line 1: .*nested deeper than 64"),
    ],
)
def test_yaml_beyond_what_slurm_needs_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_yaml(text, "t.yaml")


def test_yaml_is_read_as_slurm_writes_it() -> None:
    text = "---\n# c\n- a: 'b # c'  # d\n  e:\n  - f\n  - g: [1, 2]\n  h:\n- - i\n"
    assert read_yaml(text, "t.yaml") == [{"a": "b # c", "e": ["f", {"g": ["1", "2"]}], "h": ""}, ["i"]]


@pytest.mark.parametrize("text", [f"Include more.conf\n{TREE}", f"{TREE}include more.conf\n"])
def test_an_include_is_refused_on_whatever_line(text: str) -> None:
    with pytest.raises(
        FormatError, match=r"^t: line \d: .*more.conf.*: Weft follows no Include; put the lines"
    ):
        parse_topology(text, "t")
