"""The graphs that NCCL dumps, and the machines that its topology dumps describe with their NICs."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import FormatError
from weft.topology import load_topology
from weft.topology.nccl_xml import parse_nccl_box, parse_nccl_xml

DATA = Path(__file__).parents[1] / "data" / "topology"
GB = 10**9


def graph(channels: str, **attributes: str) -> str:
    given = {"id": "0", "speedintra": "20", "speedinter": "10", "typeintra": "NVL", **attributes}
    words = " ".join(f'{key}="{value}"' for key, value in given.items())
    return f'<graphs version="1"><graph {words}>{channels}</graph></graphs>'


def test_gpus_on_nvlink_are_on_a_switch_as_fast_as_all_channels() -> None:
    box = load_topology(DATA / "hgx.ncclgraph.xml")
    assert (box.ranks, box.switches) == (4, 1)
    assert set(box.bandwidth.tolist()) == {4 * 20 * GB}
    assert any("not how the machine is wired" in note for note in box.notes)


def test_other_gpus_have_only_the_steps_of_the_rings() -> None:
    box = load_topology(DATA / "ncv4.ncclgraph.xml")
    assert (box.ranks, box.switches) == (4, 0)
    names = {box.link_name(link) for link in range(box.links)}
    assert names == {"0->1", "1->2", "2->3", "3->0", "0->3", "3->2", "2->1", "1->0"}
    assert set(box.bandwidth.tolist()) == {12 * GB}


def test_nics_are_nearest_to_the_gpu_that_their_channels_enter_by() -> None:
    box = parse_nccl_box((DATA / "hgx.ncclgraph.xml").read_text("utf-8"), "g.xml")
    assert box.nics is not None
    assert [(nic.gpus, nic.bandwidth) for nic in box.nics] == [((0,), 48 * GB), ((2,), 48 * GB)]


def test_a_graph_of_one_gpu_is_a_machine_but_no_network() -> None:
    text = graph('<channel><net dev="0"/><gpu dev="0"/><net dev="1"/></channel>')
    box = parse_nccl_box(text, "one.xml")
    assert (box.gpus, box.inside) == (1, None)
    with pytest.raises(FormatError, match="one GPU, which is no network"):
        parse_nccl_xml(text, "one.xml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<graphs version="1"/>', 'holds no <graph id="0">'),
        (graph(""), "holds no <channel>"),
        (graph('<channel><gpu dev="a"/></channel>'), "dev must be a whole number"),
        (graph('<channel><gpu dev="0"/><gpu dev="0"/></channel>'), "each GPU of the first channel once"),
        (graph("<channel/>"), "each GPU"),
        (
            graph('<channel><gpu dev="0"/><gpu dev="1"/></channel>', speedintra="-1"),
            "speedintra must be GB/s",
        ),
        (
            graph('<channel><gpu dev="0"/><gpu dev="1"/></channel>', speedintra="nan"),
            "speedintra must be GB/s",
        ),
        ("<!DOCTYPE graphs []><graphs/>", "DOCTYPE"),
        ("<other/>", "expected <system> or <graphs>"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(text: str, said: str) -> None:
    for read in (parse_nccl_xml, parse_nccl_box):
        with pytest.raises(FormatError, match=said):
            read(text, "g.xml")


def test_nics_of_a_topology_dump_are_shared_out_over_the_gpus_on_their_bridges() -> None:
    box = parse_nccl_box((DATA / "dgx-a100.nccl.xml").read_text("utf-8"), "dgx.xml")
    assert box.gpus == 8
    assert box.nics is not None
    assert {len(nic.gpus) for nic in box.nics} == {1}
    assert sorted(nic.gpus[0] for nic in box.nics) == list(range(len(box.nics)))


def test_a_dump_of_two_machines_is_no_box() -> None:
    with pytest.raises(FormatError, match="2 machines"):
        parse_nccl_box((DATA / "two-hosts-pcie.nccl.xml").read_text("utf-8"), "two.xml")
