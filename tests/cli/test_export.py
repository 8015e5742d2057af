"""``weft export``: every form, and the two that can be read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Run

from weft.algorithms import registry
from weft.schedule.codec import load_schedule
from weft.topology import load_topology


@pytest.mark.parametrize("name", ["plan.weft", "plan.json", "plan"])
def test_a_schedule_survives_its_file(weft: Run, name: str) -> None:
    outcome = weft("export", "torus:4x4", "--algorithm", "bucket", "-o", name)
    assert outcome.code == 0
    assert f"wrote       {name}" in outcome.out
    expected = registry.find("bucket").build(load_topology("torus:4x4"), "all_reduce")
    assert load_schedule(name).digest == expected.digest


def test_the_form_follows_the_name_and_can_be_forced(weft: Run) -> None:
    assert (
        weft("export", "ring:4", "--algorithm", "ring", "-o", "a.json", "--json").document["format"] == "json"
    )
    assert weft("export", "ring:4", "--algorithm", "ring", "-o", "a.gv", "--json").document["format"] == "dot"
    forced = weft("export", "ring:4", "--algorithm", "ring", "-o", "b.json", "--format", "text", "--json")
    assert forced.document["format"] == "text"
    assert Path("b.json").read_text("utf-8").startswith("all_reduce by ring on ring:4")


def test_one_form_becomes_another(weft: Run) -> None:
    first = weft("export", "ring:4", "--algorithm", "ring", "-o", "a.weft", "--json").document
    second = weft("export", "a.weft", "-o", "a.json", "--json").document
    third = weft("export", "a.json", "-o", "b.weft", "--json").document
    assert first["digest"] == second["digest"] == third["digest"]
    assert Path("a.weft").read_bytes() == Path("b.weft").read_bytes()


def test_a_listing_is_whole(weft: Run) -> None:
    outcome = weft("export", "ring:16", "--algorithm", "ring", "--format", "text", "-o", "-")
    assert outcome.code == 0
    assert sum(line.startswith("step ") for line in outcome.out.splitlines()) == 2 * 15 * 16


def test_a_drawing_shows_the_chunk_asked_for(weft: Run) -> None:
    outcome = weft("export", "ring:4", "--algorithm", "ring", "--format", "dot", "--chunk", 2, "-o", "-")
    assert outcome.out.startswith("digraph")
    assert "chunk 2" in outcome.out
    assert weft("export", "ring:4", "--algorithm", "ring", "-o", "x.dot", "--chunk", 4).code == 2


def test_a_schedule_goes_through_a_pipe(weft: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "a.weft")
    copied = weft("export", "-", "-o", "b.weft", stdin=Path("a.weft").read_bytes())
    assert copied.code == 0
    assert Path("a.weft").read_bytes() == Path("b.weft").read_bytes()


def test_the_root_is_kept(weft: Run) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "--collective", "broadcast", "--root", 3, "-o", "a.weft")
    assert set(load_schedule("a.weft").source.tolist()) == {3}


def test_a_picture_of_trees_is_written_for_several_chunks(weft: Run) -> None:
    build = ("export", "torus:4x4", "--algorithm", "multitree", "--collective", "all_gather")
    outcome = weft(*build, "--chunk", 0, "--chunk", 5, "-o", "trees.svg", "--json")
    assert outcome.document["format"] == "trees"
    picture = Path("trees.svg").read_text("utf-8")
    assert picture.startswith("<svg")
    assert "chunk 0 of 0..15" in picture
    assert "chunk 5 of 0..15" in picture
    forced = weft(*build, "--format", "trees", "-o", "-")
    assert "chunk 0 of 0..15" in forced.out


def test_chunks_are_refused_where_nothing_draws_them(weft: Run) -> None:
    build = ("export", "ring:4", "--algorithm", "ring", "--chunk", 1)
    assert "try --format dot or trees" in weft(*build, "-o", "a.json").err
    several = weft(*build, "--chunk", 2, "-o", "a.dot")
    assert several.code == 2
    assert "a dot file draws one chunk" in several.err


def test_an_ending_that_names_no_format_is_refused_before_anything_is_written(weft: Run) -> None:
    outcome = weft("export", "ring:4", "--algorithm", "ring", "-o", "ring.xml")
    assert outcome.code == 2
    assert outcome.err == (
        "weft: error: -o 'ring.xml': no format ends in '.xml'; give --format, or one of .weft, .ni.json, "
        ".ni.txt, .json, .txt, .text, .dot, .gv, .svg\n"
    )
    assert not Path("ring.xml").exists()
    assert weft("export", "ring:4", "--algorithm", "ring", "-o", "ring.xml", "--format", "json").code == 0
