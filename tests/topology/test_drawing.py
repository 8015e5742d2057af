"""Drawings are well-formed, small, safe, and put things where they belong."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import clusters
from support.examples import examples

from weft.errors import InputError
from weft.topology import Topology, load_topology
from weft.topology.cluster_import import import_cluster
from weft.topology.drawing import draw_svg
from weft.topology.layout import lay_out

DATA = Path(__file__).parents[1] / "data" / "topology"
SVG = "{http://www.w3.org/2000/svg}"
SPECS = [
    *("torus:4x4", "mesh:3x5", "torus:4x4x4", "torus:3x2x2x3", "ring:8", "mesh:8", "mesh:40", "mesh:1x5"),
    *("hypercube:3", "hypercube:4", "hypercube:5", "fullmesh:8", "switch:8", "fattree:16", "fattree:64"),
    *(
        "bigraph:2,4",
        "bigraph:4,8",
        "dragonfly:4,2,2",
        "dragonfly:9,4,2",
        "dgx-h100:1",
        "dgx-h100:2",
        "dgx-a100:3+fail=host1.nic0",
        "mi300x:2",
        "rails:2x8@inside=pcie",
        "leafspine:8x8",
        "gb200-nvl72:2",
        "dragonflyplus:4,2,2,4",
        "dgx-h100:2@fabric=flat",
    ),
    *("hosts:4,4,2@racks=2/1", "cloud:8x8,24@nic=25GB/s"),
    *(
        "dgx-a100:4@fabric=flat",
        "hosts:8,4,2",
        "hosts:1,1,1",
        "ring:2",
        "ring:4@links=3",
        "torus:4x4@bw=1GB/s/9GB/s",
    ),
    *("torus:4x4+fail=rank:5", "torus:4x4+fail=0>1", "fattree:16+fail=rank:3", "ring:4@back=1GB/s"),
    *("servers:2x8", "servers:4x4@nics=4,fabric=bigraph,leaves=4", "servers:4x8@fabric=clos,leaves=2"),
]


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)


def classes(root: ET.Element) -> Counter[str]:
    found = Counter(element.get("class", "") for element in root.iter())
    return Counter({name: count for name, count in found.items() if name})


@pytest.mark.parametrize("spec", SPECS)
def test_every_node_is_drawn_once_and_none_over_another(spec: str) -> None:
    topology = load_topology(spec)
    root = parse(draw_svg(topology))
    legend = 1
    assert classes(root)["rank"] == topology.ranks + legend
    sorts = Counter({kind: count for kind, count in classes(root).items() if kind.split()[0] == "switch"})
    assert sorts.total() == topology.switches + legend * len(sorts)
    layout = lay_out(topology)
    radius = layout.dot if layout.dots else layout.radius
    assert min(math.dist(a, b) for a, b in combinations(layout.at, 2)) > 1.9 * radius


@pytest.mark.parametrize("spec", SPECS)
def test_everything_lies_inside_the_picture(spec: str) -> None:
    root = parse(draw_svg(load_topology(spec)))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert (float(root.get("width", 0)), float(root.get("height", 0))) == (width, height)
    outer, inner = (
        [float(number) for number in re.findall(r"-?[0-9.]+", group.get("transform", ""))]
        for group in list(root.iter(f"{SVG}g"))[:2]
    )
    dx, dy = outer[0] + inner[0], outer[1] + inner[1]
    for circle in root.iter(f"{SVG}circle"):
        if circle.get("cx") == "9":
            continue
        x, y, r = (float(circle.get(key, 0)) for key in ("cx", "cy", "r"))
        assert r <= x + dx <= width - r
        assert 60 <= y + dy <= height - 20


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_every_sample_can_be_drawn(name: str) -> None:
    parse(draw_svg(load_topology(DATA / name)))


@given(clusters())
@examples(40)
def test_any_cluster_can_be_drawn(topology: Topology) -> None:
    root = parse(draw_svg(topology))
    assert classes(root)["rank"] == topology.ranks + 1


@given(st.text(max_size=60))
@examples(60)
def test_any_name_is_escaped(name: str) -> None:
    topology = Topology.from_links(name, 2, 0, [(0, 1)], bandwidth="1GB/s", latency="0s")
    root = parse(draw_svg(topology))
    assert root.find(f"{SVG}title") is not None


def test_a_hostile_name_stays_text() -> None:
    name = "</title><script>alert(1)</script>&\x00\"'"
    topology = Topology.from_links(name, 2, 0, [(0, 1)], bandwidth="1GB/s", latency="0s")
    text = draw_svg(topology)
    assert "<script" not in text
    root = parse(text)
    assert not list(root.iter(f"{SVG}script"))
    assert "alert(1)" in (root.findtext(f"{SVG}title") or "")


def test_a_long_name_is_cut_in_the_heading() -> None:
    topology = Topology.from_links("n" * 4000, 2, 0, [(0, 1)], bandwidth="1GB/s", latency="0s")
    heading = next(element for element in parse(draw_svg(topology)).iter() if element.get("class") == "title")
    assert heading.text is not None
    assert len(heading.text) < 80


def test_kinds_of_switches_keep_their_colours_on_dark_pages() -> None:
    """A rule for all switches that comes later hides those for one kind."""
    # The frame has a scheme of its own before these two.
    text = draw_svg(load_topology("dgx-h100:2"))
    for rules in text.split("@media (prefers-color-scheme:dark){")[1:]:
        last = {
            kind: rules.rindex(f".weft-topology .{kind}{{fill") for kind in ("switch", "near", "bus", "nic")
        }
        assert min(last, key=last.__getitem__) == "switch", last


def test_a_drawing_stands_alone() -> None:
    text = draw_svg(load_topology("torus:4x4"))
    assert "href" not in text
    assert "url(" not in text
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r'\bid="', text) == [], "ids would clash when two drawings share a page"


def test_the_same_topology_is_drawn_the_same() -> None:
    assert draw_svg(load_topology("dragonfly:4,2,2")) == draw_svg(load_topology("dragonfly:4,2,2"))
    assert load_topology("ring:4")._repr_svg_() == draw_svg(load_topology("ring:4"))


def test_a_grid_of_many_ranks_that_differ_has_dots_instead_of_numbers_and_stays_small() -> None:
    broken = draw_svg(load_topology("torus:32x32+fail=40-41"))
    loaded = draw_svg(load_topology("torus:32x32"), load=range(4096))
    for text, most in ((broken, 200_000), (loaded, 350_000)):
        assert classes(parse(text))["rank"] > 1000
        assert classes(parse(text))["number"] == 0
        assert len(text) < most


def test_a_cluster_without_parts_that_are_alike_is_only_summed_up_where_it_is_too_large() -> None:
    text = draw_svg(load_topology("fullmesh:200"))
    assert "200 ranks" in text
    assert "too large to draw" in text
    assert len(text) < 5000


def test_a_grid_stands_in_rows_and_columns() -> None:
    at = lay_out(load_topology("torus:3x5")).at
    assert len({round(x) for x, _ in at}) == 5
    assert len({round(y) for _, y in at}) == 3
    assert at[0][1] == at[4][1]
    assert at[0][0] == at[10][0]


def test_cables_that_close_a_dimension_are_bows() -> None:
    torus, mesh = lay_out(load_topology("torus:4x4")), lay_out(load_topology("mesh:4x4"))
    assert set(torus.bend) == {(r, r + 3) for r in (0, 4, 8, 12)} | {(c, c + 12) for c in range(4)}
    assert mesh.bend == {}


def test_a_ring_is_a_circle_and_a_line_is_a_line() -> None:
    ring, line = lay_out(load_topology("ring:8")).at, lay_out(load_topology("mesh:8")).at
    assert all(math.isclose(math.hypot(x, y), math.hypot(*ring[0])) for x, y in ring)
    assert len({round(y) for _, y in line}) == 1


def test_a_broken_torus_still_stands_on_its_grid() -> None:
    whole, broken = lay_out(load_topology("torus:4x4")), lay_out(load_topology("torus:4x4+fail=rank:5"))
    assert broken.at == whole.at[:5] + whole.at[6:]
    text = draw_svg(load_topology("torus:4x4+fail=rank:5"))
    assert "(15)" in text
    assert "was rank 15" in text
    assert "its number before the failure" in text


def test_switches_stand_above_their_ranks_and_spines_above_leaves() -> None:
    topology = load_topology("fattree:16")
    y = [round(at[1]) for at in lay_out(topology).at]
    ranks, leaves, spines = set(y[:16]), set(y[16:20]), set(y[20:])
    assert len(leaves) == len(spines) == 1
    assert max(spines) < min(leaves) < min(ranks)


def test_the_halves_of_a_bigraph_face_each_other() -> None:
    y = [round(at[1]) for at in lay_out(load_topology("bigraph:2,4")).at]
    assert max(y[:4]) < y[8] == y[9] < y[10] == y[11] < min(y[4:8])


def test_boxes_hold_the_ranks_and_the_switch_of_a_host() -> None:
    layout = lay_out(load_topology("dgx-h100:2@fabric=flat"))
    assert [box.nodes for box in layout.boxes] == [(*range(8), 16), (*range(8, 16), 17)]
    assert [box.label for box in layout.boxes] == ["host 0", "host 1"]
    y = [at[1] for at in layout.at]
    assert y[18] < y[0] < y[16], "network above, NVSwitch below the GPUs"


def frames(topology: Topology) -> list[tuple[float, float, float, float]]:
    boxes = re.findall(
        r'<rect class="box" x="([-0-9.]+)" y="([-0-9.]+)" width="([0-9.]+)" height="([0-9.]+)"',
        draw_svg(topology),
    )
    places = [tuple(map(float, box)) for box in boxes]
    return [(x, y, x + width, y + height) for x, y, width, height in places]


@pytest.mark.parametrize(
    ("sizes", "boxes"),
    [([1] * 6, 0), ([1] * 40, 0), ([1, 2, 1, 3], 4), ([2] * 6, 6), ([1, 1, 30, 30], 0)],
    ids=str,
)
def test_boxes_of_machines_on_one_switch_do_not_overlap(sizes: list[int], boxes: int) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    hosts = tuple(tuple(range(a, b)) for a, b in pairwise(ends))
    found = frames(replace(load_topology(f"switch:{sum(sizes)}"), hosts=hosts))
    assert len(found) == boxes
    for (left, top, right, bottom), other in combinations(found, 2):
        assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_directions_are_drawn_apart_only_where_they_differ() -> None:
    assert classes(parse(draw_svg(load_topology("ring:4"))))["arrow s2"] == 0
    asymmetric = draw_svg(load_topology("ring:4@bw=10GB/s,back=1GB/s"))
    assert len(re.findall('class="arrow', asymmetric)) == 8
    assert len(re.findall('class="arrow', draw_svg(load_topology("torus:4x4+fail=0>1")))) == 1


def test_faster_links_are_thicker_and_small_drawings_name_speeds() -> None:
    text = draw_svg(load_topology("hosts:3,2@intra=100GB/s,uplink=10GB/s"))
    widths = [float(width) for width in re.findall(r'class="link s\d" stroke-width="([0-9.]+)"', text)]
    assert max(widths) > 2 * min(widths)
    assert "100 GB/s, 10 links" in text
    assert len(re.findall(r'class="speed"[^>]*>10 GB/s<', text)) == 2


def test_load_colours_links() -> None:
    topology = load_topology("ring:4")
    load = [0, 1, 2, 3, 4, 5, 6, 10]
    text = draw_svg(topology, load=load)
    parse(text)
    assert 'class="link l0"' in text
    assert 'class="link l5"' in text
    assert "idle" in text
    assert "≤ 10" in text
    assert 'class="link s' not in text
    parse(draw_svg(topology, load=[0] * 8))


@pytest.mark.parametrize("load", [[1, 2], [-1] * 8, [float("nan")] * 8, [[1] * 8]])
def test_a_load_that_does_not_fit_is_refused(load: list[float]) -> None:
    with pytest.raises(InputError, match="one number of at least 0 for each of the 8 links"):
        draw_svg(load_topology("ring:4"), load=load)


def test_hosts_are_frames_with_their_parts_and_tiers_stand_above() -> None:
    topology = load_topology("dgx-h100:2")
    layout = lay_out(topology)
    assert [box.label for box in layout.boxes] == ["host 0", "host 1"]
    height = {name: layout.at[topology.parse_node(name)][1] for name in topology.switch_names}
    gpu = layout.at[topology.parse_node("host1.gpu3")][1]
    assert height["spine0"] < height["leaf3"] < height["host1.nic3"] < height["host1.pcie3"] < gpu
    assert gpu < height["host1.nvswitch"]
    left, top, right, bottom = layout.frame(layout.boxes[1])
    inside = [layout.at[topology.parse_node(f"host1.nic{nic}")] for nic in range(8)]
    assert all(left < x < right and top < y < bottom for x, y in inside)
    assert not any(left < layout.at[rank][0] < right for rank in range(8))


def test_a_drawing_keeps_names_and_marks_what_failed() -> None:
    text = draw_svg(load_topology("dgx-h100:2+fail=host0.nic5"))
    for name in ("nic5", "pcie0", "nvswitch", "leaf7", "spine0"):
        assert f">{name}</text>" in text
    failed = re.findall(r'<g><rect class="switch failed"[^>]*/><text[^>]*>([^<]*)</text>', text)
    assert failed == ["nic5"]
    assert "failed, no link left" in text
    assert "450 GB/s, 32 links" in text
    assert "failed" not in draw_svg(load_topology("dgx-h100:2")).partition("</style>")[2]


def test_many_hosts_are_drawn_small_with_names_above() -> None:
    topology = load_topology("leafspine:16x8@oversub=3,spines=4")
    layout = lay_out(topology)
    assert layout.dots == {
        node for node in range(topology.nodes) if not topology.node_name(node).startswith(("leaf", "spine"))
    }
    frames = [layout.frame(box) for box in layout.boxes]
    assert all(one[2] < other[0] for one, other in pairwise(frames))
    text = draw_svg(topology)
    assert all(f">{name}</text>" in text for name in ("leaf3", "spine3", "host 15"))


def test_cables_past_a_router_of_a_dragonfly_bow() -> None:
    topology = load_topology("dragonfly:4,4,2")
    first = topology.ranks
    bend = lay_out(topology).bend
    assert (first, first + 1) not in bend
    assert bend[first, first + 3] < 0


def speed_labels(spec: str) -> list[str]:
    return re.findall(r'<text class="speed"[^>]*>([^<]*)</text>', draw_svg(load_topology(spec)))


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("dgx-h100:2+fail=host0.nic5", "slowest: 50 GB/s"),
        ("leafspine:16x8@oversub=3", "slowest: 50 GB/s"),
        ("dgx-h100:4@spines=2+speed=leaf0-spine1:10GB/s", "slowest: 10 GB/s x 2"),
        ("torus:4x4+speed=5-6:1GB/s", "1 GB/s"),
        ("torus:4x4+speed=5>6:1GB/s", "5 → 6: 1 GB/s"),
        ("torus:4x4x4+speed=0-1:1GB/s", "slowest: 1 GB/s"),
        ("torus:32x32+speed=0-1:1GB/s", "1 GB/s"),
        ("dragonfly:9,4,2@global=5GB/s", "slowest: 5 GB/s"),
        (f"{DATA}/tree.slurm.conf", "slowest: 50 GB/s"),
    ],
)
def test_the_slowest_cable_of_a_large_drawing_has_a_label(spec: str, label: str) -> None:
    assert speed_labels(spec) == [label]


def test_a_network_of_one_speed_needs_no_label() -> None:
    assert speed_labels("tpu-v4:4x4x4") == []


def test_the_slowest_cable_of_a_small_drawing_has_a_label_even_where_there_is_no_room() -> None:
    assert "1.234 KB/s" in speed_labels("switch:3+speed=0-s0:1234B/s")
    assert any("1 → 0: 10 MB/s" in text for text in speed_labels("mesh:4+speed=1>0:10MB/s"))


def test_imported_machines_are_frames_with_their_names() -> None:
    cluster = import_cluster([DATA / "rails.ibnetdiscover.txt"], boxes=["switch:4@bw=100GB/s"]).topology
    layout = lay_out(cluster)
    assert [box.label for box in layout.boxes] == ["node01", "node02", "node03", "node04"]
    text = draw_svg(cluster)
    assert all(f">{name}</text>" in text for name in ("leaf1", "leaf2", "spine1", "node03"))
    height = {name: layout.at[cluster.parse_node(name)][1] for name in ("leaf1", "spine1", "node01.switch0")}
    assert height["spine1"] < height["leaf1"] < layout.at[0][1] < height["node01.switch0"]


def test_the_pictures_of_the_documentation_are_what_is_drawn_today(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setattr("sys.path", [str(root / "tools"), *sys.path])
    pictures = import_module("pictures")
    monkeypatch.delitem(sys.modules, "pictures")
    page = (root / "docs" / "topology.md").read_text("utf-8")
    for name, spec in pictures.DRAWN.items():
        stored = (root / "docs" / "images" / f"{name}.svg").read_text("utf-8")
        assert stored == draw_svg(load_topology(spec)), f"{name}: draw it with tools/pictures.py"
        assert f"images/{name}.svg" in page
