"""``weft reproduce``: claims beside our numbers, in tables, row by row, as JSON and in charts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run

from weft.cli import reproduce
from weft.papers import PAPERS, ClaimRow, Reproduction
from weft.papers.claims import VERDICTS
from weft.papers.outcomes import find_claims, stored
from weft.papers.svg_charts import bar_chart, line_chart

ROWS = (
    ClaimRow("as fast as said", "four ranks", 2.0, 1.5, "x", "half is latency", claim_id="dear-ethernet"),
    ClaimRow("as fast as said", "five ranks", 2.0, 1.7, "x", "less of it is latency"),
    ClaimRow("faster than others", "eight ranks", 83.0, 10.25, " %", at_most=True),
    ClaimRow("something else", "two ranks", None, 3.0, " GB/s"),
)
FOUND = Reproduction(
    "dear",
    "A title",
    "A reference",
    ("links are as fast as their wires",),
    {"dear-ethernet": "as fast as said"},
    ROWS,
    {"points": [[1, 2.5]]},
    {"first": line_chart("a <title>", "x", "y", {"line & more": [(1, 2.0), (4, 3.0)]}, log_x=True)},
    1.5,
)
KEYS = ["paper", "id", "claim", "paper_value", "ours", "deviation", "verdict", "why"]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print a small reproduction: real ones take minutes, and their own tests run parts of them."""

    def run(_paper: str, _report: object, _effort: object, show: Callable[[ClaimRow], None]) -> Reproduction:
        for row in ROWS:
            show(row)
        return FOUND

    monkeypatch.setattr("weft.papers.reproduce", run)


@pytest.mark.usefixtures("found")
def test_a_row_has_claim_numbers_deviation_and_reason(weft: Run) -> None:
    text = weft("reproduce", "dear").out
    for line in (
        "counts as  dear-ethernet",
        "paper      2.00x",
        "ours       1.50x (-25.0%)",
        "why        half is latency",
        "paper   up to 83 %",
        "paper   not known",
        "- links are as fast as their wires",
    ):
        assert line in text
    assert text.count("\nas fast as said\n") == 1


@pytest.mark.usefixtures("found")
def test_the_stored_claims_of_a_paper_stand_before_its_rows(weft: Run) -> None:
    text = weft("reproduce", "dear").out
    assert text.startswith("DeAR")
    assert text.index("dear-infiniband") < text.index("as fast as said") < text.index("Assumptions")


def test_rows_are_printed_while_the_study_goes_on(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(_paper: str, _report: object, _effort: object, show: Callable[[ClaimRow], None]) -> None:
        show(ROWS[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("weft.papers.reproduce", stops)
    assert "half is latency" in weft("reproduce", "dear").out


@pytest.mark.usefixtures("found")
def test_json_is_one_document_and_charts_are_written(weft: Run, tmp_path: Path) -> None:
    done = weft("reproduce", "dear", "--json", "--charts", "pictures")
    assert done.code == 0
    assert json.loads(done.out) == {"version": 1, **FOUND.to_dict()}
    picture = (tmp_path / "pictures" / "dear-first.svg").read_text("utf-8")
    assert "a &lt;title&gt;" in picture
    assert "line &amp; more" in picture


def check_claims(document: dict[str, Any]) -> list[str]:
    """Hold every claim of a document against the schema; give their identifiers."""
    assert document["version"] == 1
    for one in document["claims"]:
        assert list(one) == KEYS
        assert one["id"].startswith(f"{one['paper']}-")
        assert one["verdict"] in VERDICTS
        if one["paper_value"] is None:
            assert (one["deviation"], one["verdict"]) == (None, "no_number")
        else:
            assert one["deviation"] == pytest.approx(one["ours"] / one["paper_value"] - 1)
    return [one["id"] for one in document["claims"]]


def test_without_a_paper_all_claims_are_one_document(weft: Run) -> None:
    done = weft("reproduce", "--json")
    assert done.code == 0
    assert set(done.document) == {"version", "claims"}
    assert check_claims(done.document) == [name for paper in PAPERS for name in find_claims(paper)]


def test_without_a_paper_all_claims_are_one_table_with_reasons_below(weft: Run) -> None:
    text = weft("reproduce").out
    for paper in PAPERS:
        for one in stored()[paper].outcomes.values():
            assert one.claim_id in text
            assert (one.verdict == "within_10") or text.count(f"\n{one.claim_id}  ") == 1
    for word in ("within 10 %", "within 25 %", "not reproduced", "no number"):
        assert word in text


def test_one_claim_runs_by_itself(weft: Run) -> None:
    done = weft("reproduce", "--claim", "ace-memory", "--json")
    assert check_claims(done.document) == ["ace-memory"]
    assert done.document["claims"][0]["ours"] == pytest.approx(stored()["ace"].outcomes["ace-memory"].ours)
    text = weft("reproduce", "multitree", "--claim", "multitree-ring-links").out
    assert "25 %" in text
    assert "within 10 %" in text
    assert "multitree-entries" not in text


def test_quick_runs_what_is_cheap_and_names_what_it_left_out(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reproduce.QUICK_S == 20
    monkeypatch.setattr(reproduce, "QUICK_S", 5.0)
    monkeypatch.setattr(reproduce, "_spent_s", lambda: 0.0)
    done = weft("reproduce", "multitree", "--quick", "--json")
    made, left_out = check_claims(done.document), done.document["left_out"]
    assert "multitree-ring-links" in made
    assert "multitree-scaling-ring" in left_out
    assert sorted(made + left_out) == sorted(find_claims("multitree"))
    assert "left out" in weft("reproduce", "multitree", "--quick").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpipe"], "there is no paper 'gpipe'; known: dear, ace"),
        (["--claim", "ace-speed"], "there is no claim 'ace-speed'; did you mean ace-"),
        (["dear", "--claim", "ace-memory"], "claim 'ace-memory' is of ace, not of dear"),
        (["gpipe", "--claim", "ace-memory"], "there is no paper 'gpipe'"),
        (["--claim", "ace-memory", "--quick"], "--claim and --quick exclude each other"),
        (["--charts", "pictures"], "--charts needs all of one paper"),
        (["ace", "--quick", "--charts", "pictures"], "--charts needs all of one paper"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_code_2(weft: Run, words: list[str], said: str) -> None:
    done = weft("reproduce", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_charts_of_odd_numbers_can_be_drawn() -> None:
    assert "<polyline" in line_chart("t", "x", "y", {"flat": [(1, 0.0), (2, 0.0)], "point": [(1, 1.0)]})
    assert (
        bar_chart("t", "y", ["a", "b"], {"one": [1.0, None], "two": [0.0, 5e9]}, line_at=1).count("<rect")
        == 6
    )
