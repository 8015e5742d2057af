"""``weft report``, and ``--report`` of the commands that have a result."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Run

FLIGHTS = Path(__file__).with_name("flights")


def test_a_plan_becomes_a_page(weft: Run, tmp_path: Path) -> None:
    assert weft("plan", "ring:4", "--size", "1MiB", "--algorithm", "ring", "-o", "plan.weft").code == 0
    done = weft("report", "plan.weft", "-o", "report.html", "--title", "my cluster")
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text("utf-8")
    assert done.out == f"wrote report.html, {len(page.encode()):,} bytes\n"
    assert "<title>my cluster</title>" in page


def test_a_page_goes_to_standard_output(weft: Run) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "ring.weft")
    done = weft("report", "ring.weft", "--size", "1MiB", "-o", "-")
    assert done.code == 0
    assert done.out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    "words",
    [
        ("topology", "ring:4"),
        ("topology", "ring:4", "--load", "ring", "--size", "1MiB"),
        ("compare", "ring:4", "--size", "1MiB", "--algorithm", "ring"),
        ("compare", "ring:4", "--algorithm", "ring"),
        ("plan", "ring:4", "--size", "1MiB", "--algorithm", "ring"),
        ("simulate", "ring:4", "--algorithm", "ring", "--size", "1MiB"),
        ("packets", "ring:4", "--algorithm", "ring", "--size", "4KiB"),
        ("train", "switch:4", "--model", "resnet50", "--policy", "ddp"),
        ("train", "switch:4", "--model", "resnet50", "--sweep", "policy=ddp,dear", "--jobs", "1"),
        ("bench", "-R", "2", "-b", "1K", "-e", "1K", "-r", "1", "-n", "1"),
        ("reproduce",),
        ("verify", "ring:4", "--algorithm", "ring", "--contention"),
        ("soak", "--seconds", "1", "--ranks", "2", "--no-kills", "--episodes", "1"),
        ("explain", str(FLIGHTS)),
    ],
    ids=" ".join,
)
def test_a_command_with_a_result_writes_it_as_a_page(
    weft: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = weft(*words, "--report", "page.html")
    assert done.code == 0, done.err
    page = (tmp_path / "page.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert done.out.endswith(f"\nwrote page.html, {len(page):,} bytes\n")


def test_with_json_only_the_document_is_printed_and_makes_the_same_tables(weft: Run, tmp_path: Path) -> None:
    done = weft(
        "compare", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--json", "--report", "one.html"
    )
    assert done.document["topology"] == "ring:4"
    (tmp_path / "result.json").write_text(done.out, "utf-8")
    assert weft("report", "result.json", "-o", "two.html").code == 0
    for name in ("one.html", "two.html"):
        assert '"title":"Algorithms: all_reduce of 1MiB"' in (tmp_path / name).read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("compare", "ring:4", "--report", "-"), "weft report -o - writes a page to standard output"),
        (("compare", "ring:4", "--report", "no/such/page.html"), "there is no directory no/such"),
        (("report", "no.weft", "-o", "page.html"), "no.weft: no such file"),
        (("report", "-o", "page.html"), "Missing argument"),
        (("report", "x"), "Missing option '-o'"),
    ],
)
def test_bad_use_is_told_before_any_work(weft: Run, words: tuple[str, ...], complaint: str) -> None:
    done = weft(*words)
    assert done.code == 2
    assert complaint in done.err
    assert done.out == ""
