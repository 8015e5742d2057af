"""``weft topology``: facts, sketches, drawings, files and routes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from cli.running import Run

from weft.cli.facts import describe_group, half_to_half, measure_distances
from weft.topology import load_topology

DATA = Path(__file__).parents[1] / "data" / "topology"


def test_a_torus_is_described_and_sketched(weft: Run) -> None:
    outcome = weft("topology", "torus:4x4@bw=16GB/s,lat=150ns")
    assert outcome.code == 0
    assert outcome.err == ""
    for text in (
        "── 12 ── 13 ── 14 ── 15 ──",
        "4 links out, 64GB/s",
        "4 hops, 600ns",
        "dimension-order",
        "16GB/s",
    ):
        assert text in outcome.out


def test_json_has_all_facts(weft: Run) -> None:
    found = weft("topology", "hosts:8,4,2@intra=100GB/s,uplink=10GB/s", "--json").document
    assert found["name"] == "hosts:8,4,2@intra=100GB/s,uplink=10GB/s"
    assert (found["ranks"], found["switches"], found["links"]) == (14, 4, 34)
    assert found["groups"] == [list(range(8)), [8, 9, 10, 11], [12, 13]]
    assert found["diameter_hops"] == 4
    assert {c["count"] for c in found["link_classes"]} == {28, 6}
    assert len(found["digest"]) == 64
    assert "route" not in found


def test_the_route_between_two_ranks_is_shown(weft: Run) -> None:
    outcome = weft("topology", "torus:4x4", "--routes", 0, 6)
    assert "route 0 to 6: 3 hops, 3us, 25GB/s" in outcome.out
    found = weft("topology", "torus:4x4", "--routes", 0, 6, "--json").document
    assert [hop["name"] for hop in found["route"]] == ["0->1", "1->2", "2->6"]
    assert [found["link_names"][hop["link"]] for hop in found["route"]] == ["0->1", "1->2", "2->6"]
    assert len(found["link_names"]) == found["links"]
    rows = [line.split()[:3] for line in outcome.out.splitlines()[-3:]]
    assert rows == [[str(i), str(hop["link"]), hop["name"]] for i, hop in enumerate(found["route"], 1)]


def test_a_drawing_is_an_svg(weft: Run) -> None:
    outcome = weft("topology", "torus:4x4", "--svg", "torus.svg")
    assert outcome.code == 0
    assert "wrote torus.svg" in outcome.out
    assert ET.parse("torus.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "spec",
    ["torus:4x4+fail=0-1", "hosts:8,4,2@uplink=10GB/s/5GB/s/1GB/s", "fattree:16", "ring:8+fail=rank:3"],
)
def test_a_topology_file_gives_the_same_topology_back(weft: Run, spec: str) -> None:
    first = weft("topology", spec, "--toml", "cluster.toml", "--json").document
    second = weft("topology", "cluster.toml", "--json").document
    assert first["digest"] == second["digest"]


def test_a_long_spec_is_a_comment_of_a_file_that_has_a_name_of_its_own(weft: Run) -> None:
    spec = f"ring:40@bw=16GB/s,lat=150ns{''.join(f'+speed={k}-{k + 1}:{k + 2}GB/s' for k in range(4))}"
    assert len(spec) > 80
    first = weft("topology", spec, "--toml", "rack.toml", "--json").document
    assert first["name"] == spec
    assert Path("rack.toml").read_text().splitlines()[:2] == [f"# from: {spec}", 'name = "rack"']
    second = weft("topology", "rack.toml", "--json").document
    assert (second["name"], second["digest"]) == ("rack", first["digest"])
    assert weft("topology", spec, "--toml", "-").out.startswith(f'name = "{spec}"\n')


def test_a_topology_file_goes_through_a_pipe(weft: Run) -> None:
    written = weft("topology", "bigraph:2,4", "--toml", "-")
    assert written.code == 0
    read = weft("topology", "-", "--json", stdin=written.out.encode())
    assert read.document["digest"] == load_topology("bigraph:2,4").digest


def test_what_an_import_assumed_is_told(weft: Run) -> None:
    source = DATA / "dgx1.nvidia-smi.txt"
    notes = weft("topology", source, "--json").document["assumptions"]
    assert len(notes) == 3
    shown = weft("topology", source, "--toml", "box.toml").out
    assert shown.count("assumed") == 1
    assert all(note in shown for note in notes)
    assert Path("box.toml").read_text().startswith(f"# assumed: {notes[0]}\n")
    written = weft("topology", "box.toml", "--json").document
    assert written["assumptions"] == []
    assert written["digest"] == weft("topology", source, "--json").document["digest"]


def test_removed_ranks_are_told(weft: Run) -> None:
    assert "7, numbered anew; before: 0-2, 4-7" in weft("topology", "ring:8+fail=rank:3").out


def test_a_large_cluster_is_described_without_its_distances(weft: Run) -> None:
    outcome = weft("topology", "ring:3000")
    assert outcome.code == 0
    assert "not measured above 1,024 ranks" in outcome.out


def test_a_name_cannot_speak_to_the_terminal(weft: Run) -> None:
    text = weft("topology", "ring:3", "--toml", "-").out.replace('"ring:3"', '"\\u001b[31mred [bold]x"')
    assert "\\u001b" in text
    Path("evil.toml").write_text(text, "utf-8")
    outcome = weft("topology", "evil.toml")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "\\x1b[31mred [bold]x" in outcome.out


def test_distances_are_those_of_the_network() -> None:
    found = measure_distances(load_topology("ring:8@bw=8GB/s,lat=1us"))
    assert found is not None
    assert (found.hops, found.latency_ps) == (4, 4_000_000)
    # Forward links carry distances 1 to 4 (the tie goes forward): 1 + 2 + 3 + 4 pairs each.
    assert found.pair_bandwidth == pytest.approx(0.8e9)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ring:8@bw=10GB/s", 20e9),
        ("torus:4x4@bw=10GB/s", 80e9),
        ("switch:8@bw=10GB/s", 40e9),
        ("fattree:4,1,4@bw=10GB/s", 20e9),
        ("hosts:4,4@uplink=3GB/s", 3e9),
        ("hosts:8,4,2", None),
    ],
)
def test_the_flow_between_the_halves(spec: str, expected: float | None) -> None:
    assert half_to_half(load_topology(spec)) == expected


def test_runs_of_ranks_are_short() -> None:
    assert describe_group((0, 2, 3, 4, 9)) == "0, 2-4, 9"


def test_a_load_is_drawn_with_its_unit_and_printed(weft: Run) -> None:
    spec = "torus:4x4@bw=16GB/s,lat=150ns+fail=5-6"
    given = ("--load", "ring", "--size", "64MiB", "--segment", "none")
    outcome = weft("topology", spec, *given, "--svg", "load.svg")
    assert outcome.code == 0
    assert "ring all_reduce of 64MiB: 7.869 ms" in outcome.out
    assert "46 of 62 links carry nothing" in outcome.out
    picture = Path("load.svg").read_text("utf-8")
    assert "≤ 7.86 ms busy" in picture
    assert "ring all_reduce of 64MiB, whole messages: 7.869 ms" in picture
    stored = Path(__file__).parents[2] / "docs" / "images" / "load-ring.svg"
    assert picture == stored.read_text("utf-8"), "the picture of the README; draw it with tools/pictures.py"


def test_the_document_of_a_load_has_the_time_of_every_link(weft: Run) -> None:
    given = ("--load", "ring", "--size", "1MiB", "--collective", "all_gather")
    found = weft("topology", "ring:4", *given, "--json").document
    assert found["load"]["collective"] == "all_gather"
    assert len(found["load"]["link_busy_ps"]) == found["links"]
    assert max(found["load"]["link_busy_ps"]) <= found["load"]["time_ps"]
    assert "load" not in weft("topology", "ring:4", "--json").document


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--load", "ring"], "give --size, such as --size 64MiB"),
        (["--size", "1MiB"], "--size: is for a load; give --load"),
        (["--segment", "none"], "--segment: is for a load"),
        (["--load", "rings", "--size", "1MiB"], "did you mean ring"),
        (["--load", "bucket", "--size", "1MiB"], ""),
        (["--load", "ring", "--size", "1MiB", "--root", "1"], "all_reduce has no root"),
    ],
)
def test_a_load_that_cannot_be_is_refused(weft: Run, given: list[str], complaint: str) -> None:
    outcome = weft("topology", "switch:5", *given)
    assert outcome.code == 2
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1
