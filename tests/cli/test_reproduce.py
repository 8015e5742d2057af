"""``weft reproduce``: claims beside our numbers, in text, JSON and charts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import Run

from weft.cli import reproduce
from weft.cli.output import make_console
from weft.papers import PAPERS, ClaimRow, Reproduction
from weft.papers.svg_charts import bar_chart, line_chart

FOUND = Reproduction(
    "dear",
    "A title",
    "A reference",
    ("links are as fast as their wires",),
    (
        ClaimRow("as fast as said", "four ranks", 2.0, 1.5, "x", "half of it is latency"),
        ClaimRow("faster than others", "eight ranks", 83.0, 10.25, " %", at_most=True),
        ClaimRow("something else", "two ranks", None, 3.0, " GB/s"),
    ),
    {"points": [[1, 2.5]]},
    {"first": line_chart("a <title>", "x", "y", {"line & more": [(1, 2.0), (4, 3.0)]}, log_x=True)},
    1.5,
)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print a small reproduction: real ones take a minute, and their own tests run parts of them."""
    monkeypatch.setattr("weft.papers.reproduce", lambda _paper, _report: FOUND)


def test_a_row_has_claim_numbers_deviation_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    reproduce._show(FOUND, make_console())
    text = capsys.readouterr().out
    for line in (
        "paper   2x",
        "ours    1.5x (-25.0%)",
        "why     half of it is latency",
        "paper   up to 83 %",
        "paper   not known",
        "- links are as fast as their wires",
    ):
        assert line in text


@pytest.mark.usefixtures("found")
def test_json_is_one_document_and_charts_are_written(weft: Run, tmp_path: Path) -> None:
    done = weft("reproduce", "dear", "--json", "--charts", "pictures")
    assert done.code == 0
    assert json.loads(done.out) == FOUND.to_dict()
    picture = (tmp_path / "pictures" / "dear-first.svg").read_text("utf-8")
    assert "a &lt;title&gt;" in picture
    assert "line &amp; more" in picture


def test_an_unknown_paper_lists_the_known_ones(weft: Run) -> None:
    done = weft("reproduce", "gpipe")
    assert (done.code, done.out) == (2, "")
    assert all(paper in done.err for paper in PAPERS)


def test_charts_of_odd_numbers_can_be_drawn() -> None:
    assert "<polyline" in line_chart("t", "x", "y", {"flat": [(1, 0.0), (2, 0.0)], "point": [(1, 1.0)]})
    assert (
        bar_chart("t", "y", ["a", "b"], {"one": [1.0, None], "two": [0.0, 5e9]}, line_at=1).count("<rect")
        == 6
    )
