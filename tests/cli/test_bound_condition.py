"""Wherever a bound is shown, it says what it takes for granted: a switch that adds can beat some of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import Run

import weft as weft_package
from weft.bench.bound import topology_limit
from weft.bench.task import BenchTask
from weft.planning import compare
from weft.topology import load_topology

SUMS = "sums are made at ranks"
BOX = "switch:4"
"""Its bound is of all ranks by themselves, so that a switch which adds could beat it."""

WORDS = {
    "compare": ("compare", BOX, "--size", "64MiB", "--algorithm", "ring"),
    "sizes": ("compare", BOX, "--algorithm", "ring"),
    "plan": ("plan", BOX, "--size", "64MiB", "--algorithm", "ring"),
    "simulate": ("simulate", BOX, "--size", "64MiB", "--algorithm", "ring"),
    "train": ("train", BOX, "--model", "resnet50", "--policy", "ddp"),
}


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", WORDS)
def test_what_people_read_says_the_condition_of_the_bound(weft: Run, name: str) -> None:
    assert SUMS in flat(weft(*WORDS[name]).out)
    without = (word.replace(BOX, "ring:4") for word in WORDS[name])
    assert SUMS not in flat(weft(*without).out)


@pytest.mark.parametrize("name", WORDS)
def test_documents_and_pages_say_the_condition_of_the_bound(weft: Run, tmp_path: Path, name: str) -> None:
    document = weft(*WORDS[name], "--json").document
    for one in document.get("sizes", [document])[-1:]:
        assert one["bound_condition"] == SUMS
        assert all(point["bound_condition"] == SUMS for point in one.get("points", ()))
    stored, page = tmp_path / "stored.json", tmp_path / "page.html"
    stored.write_text(json.dumps(document), "utf-8")
    assert weft("report", str(stored), "-o", str(page)).code == 0
    assert SUMS in page.read_text("utf-8")
    without = [word.replace(BOX, "ring:4") for word in WORDS[name]]
    document = weft(*without, "--json").document
    assert document.get("sizes", [document])[-1]["bound_condition"] == ""


def test_a_measurement_beside_a_topology_says_the_condition_of_the_bound(weft: Run) -> None:
    spec = f"{BOX}@bw=1GB/s"
    words = (
        "bench",
        "-R",
        "4",
        "-b",
        "64K",
        "-e",
        "64K",
        "-n",
        "1",
        "-w",
        "0",
        "-r",
        "1",
        "--topology",
        spec,
    )
    done = weft(*words)
    assert done.code == 0
    (line,) = (line for line in done.out.splitlines() if line.startswith("# bound: "))
    assert SUMS in line
    task = BenchTask("all_reduce", "float32", "sum", 4, 64 << 10)
    assert SUMS in topology_limit(task, load_topology(spec)).kind
    assert SUMS not in topology_limit(task, load_topology("ring:4@bw=1GB/s")).kind


def test_cards_of_notebooks_say_the_condition_of_the_bound() -> None:
    for found in (
        compare(BOX, "64MiB", algorithms="ring"),
        weft_package.plan(BOX, "64MiB", algorithms="ring"),
    ):
        assert SUMS in found._repr_html_()
