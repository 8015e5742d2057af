"""Drawings of very large clusters: one of each kind of machine, the corner of a grid, and counts."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from weft.topology import load_topology
from weft.topology.drawing import draw_svg
from weft.topology.representatives import MANY_NODES, lay_out_representatives


def circles(text: str) -> int:
    """Ranks that are drawn, without the sample of the legend."""
    return len(re.findall(r'<circle class="rank"', text)) - 1


@pytest.mark.parametrize(
    ("spec", "ranks", "words"),
    [
        ("rails:128x8", 8, ["host 0, one of 128 alike: 8 of 1,024 ranks", "32 leaf switches, 8 drawn"]),
        ("dgx-h100:128+fail=host3.nic2", 16, ["one of 127 alike", "host 3: 8 ranks", "failed, no link left"]),
        ("leafspine:128x8", 8, ["each: 32 x 50 GB/s down", "16 spine switches"]),
        ("threetier:128x8", 8, ["16 core switches", "16 spine switches, 8 drawn"]),
        ("gb200-nvl72:14", 16, ["host 0, one of 14 alike: 16 of 1,008 ranks"]),
        ("fattree:1024", 16, ["ranks on s0, one of 32 alike: 16 of 1,024 ranks", "32 switches, 16 drawn"]),
        ("dragonfly:16,8,8", 8, ["128 switches, 8 drawn", "9 x 25 GB/s across"]),
        ("switch:1024", 16, ["ranks on s0: 16 of 1,024 ranks"]),
        ("torus:32x32", 16, ["corner of the grid of 32 x 32 ranks"]),
        ("tpu-v4:16x16x16", 64, ["corner of the grid of 16 x 16 x 16 ranks"]),
    ],
)
def test_a_large_cluster_is_drawn_by_representatives_with_counts(
    spec: str, ranks: int, words: list[str]
) -> None:
    text = draw_svg(load_topology(spec))
    ET.fromstring(text)
    assert circles(text) == ranks
    assert len(text) < 60_000
    for word in [*words, "nodes drawn for all"]:
        assert word in text


def test_the_ranks_that_are_drawn_keep_their_numbers() -> None:
    text = draw_svg(load_topology("torus:32x32"))
    numbers = re.findall(r'class="number"[^>]*>([0-9]+)<', text)
    rows = [0, 1, 2, 31]
    assert sorted(map(int, numbers)) == sorted(32 * row + column for row in rows for column in rows)


def test_a_small_cluster_is_drawn_whole() -> None:
    assert lay_out_representatives(load_topology("leafspine:16x8@oversub=3")) is None
    assert load_topology("torus:16x16").nodes <= MANY_NODES


def test_kinds_of_machines_beyond_the_third_are_counted() -> None:
    faults = ",".join(f"host{number}.nic{number}" for number in range(5))
    text = draw_svg(load_topology(f"rails:64x8+fail={faults}"))
    assert "one of 59 alike" in text
    assert "and 3 other kinds of machines, 3 in all" in text


def test_a_line_has_the_colour_of_the_busiest_link_that_it_stands_for() -> None:
    topology = load_topology("rails:128x8")
    load = np.zeros(topology.links)
    hidden = topology.links_between(topology.parse_node("host77.nic4"), topology.parse_node("leaf20"))
    link = next(
        number
        for number in range(topology.links)
        if topology.node_name(int(topology.link_src[number])) == "host77.nic4"
        and topology.node_name(int(topology.link_dst[number])).startswith("leaf")
    )
    assert not hidden or link in hidden
    load[link] = 7.0
    text = draw_svg(topology, load=load, unit="ms busy")
    assert text.count('class="arrow l5"') == 1, "nic4 of the host that is drawn, to its leaf"
    assert "≤ 7 ms busy" in text
    assert "the busiest of the links that it stands for" in text
