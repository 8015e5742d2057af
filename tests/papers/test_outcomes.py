"""Claims of the papers: one row counts for each, and what is stored is what comes out."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
import remake_claims

from weft.cli.reproduce import QUICK_S
from weft.papers import PAPERS, find_paper, outcomes, quick_studies, reproduce
from weft.papers.claims import NEAR, VERDICTS, ClaimRow, judge
from weft.papers.outcomes import ClaimOutcome, ClaimStudy, find_claims, find_study, stored, studies_of
from weft.papers.quick_studies import in_order, remake_within

ABSTRACTS = {
    "ace": {3.5, 1.44, 2.67, 1.41, 1.51, 1.12, 1.17, 1.13, 1.19},
    "dear": {83.0, 15.0},
    "eflops": {11.3, 6.08, None},
    "flexreduce": {None},
    "multitree": {2.3, 1.56, 81.0, 30.0},
}
"""The numbers of the abstracts; None for claims in words."""


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_of_an_abstract_is_stored_with_a_reason(paper: str) -> None:
    found = stored()[paper].outcomes
    assert list(found) == list(find_claims(paper))
    assert {one.paper_value for one in found.values()} >= ABSTRACTS[paper]
    for one in found.values():
        assert one.claim_id.startswith(f"{paper}-")
        assert one.why
        assert one.setup


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_has_an_effort_and_a_title_of_its_own(paper: str) -> None:
    claims = find_claims(paper)
    assert set(find_paper(paper).NEEDED) == set(claims)
    assert len(set(claims.values())) == len(claims)
    together = [name for study in studies_of(paper) for name in study.claim_ids]
    assert sorted(together) == sorted(claims)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_cheapest_claims_come_out_as_stored(paper: str) -> None:
    check(in_order([paper])[0])


def check(study: ClaimStudy) -> None:
    """Make claims anew, and hold them against those that are stored."""
    known = stored()[study.paper].outcomes
    found, _ = study.remake()
    for one in found:
        assert one.ours == pytest.approx(known[one.claim_id].ours, rel=1e-6)
        assert replace(one, ours=0.0) == replace(known[one.claim_id], ours=0.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("paper", PAPERS)
def test_all_of_a_paper_comes_out_as_stored_with_one_row_for_each_claim(paper: str) -> None:
    shown: list[ClaimRow] = []
    whole = reproduce(paper, show=shown.append)
    assert tuple(shown) == whole.rows
    counted = [row for row in whole.rows if row.claim_id]
    assert sorted(row.claim_id for row in counted) == sorted(find_claims(paper))
    known = stored()[paper].outcomes
    for row in counted:
        assert row.ours == pytest.approx(known[row.claim_id].ours, rel=1e-6), row.claim_id
        assert row.paper == known[row.claim_id].paper_value
    titles = [title for title, _ in groupby(whole.rows, key=lambda row: row.claim)]
    assert len(set(titles)) == len(titles), "rows with the same title are not one after the other"
    for study in studies_of(paper):
        check(study)


def test_verdicts_are_bands_of_the_deviation_on_both_sides() -> None:
    for sign in (-1, 1):
        assert judge(1000, 1000 + sign * 99) == "within_10"
        assert judge(1000, 1000 + sign * 101) == judge(1000, 1000 + sign * 250) == "within_25"
        assert judge(1000, 1000 + sign * 251) == "not_reproduced"
    assert judge(None, 1.0) == "no_number"
    assert set(NEAR) < set(VERDICTS)


def test_a_speed_up_that_is_none_here_is_not_reproduced_however_small_it_is() -> None:
    assert judge(1.13, 1.02, "x") == "within_10"
    assert judge(1.13, 1.004, "x") == judge(1.05, 0.99, "x") == "not_reproduced"
    assert judge(1.05, 0.99, " GB/s") == judge(1.0, 0.99, "x") == "within_10"


def test_what_the_paper_calls_the_most_is_judged_as_any_number() -> None:
    above = ClaimRow("claim", "here", 2.0, 3.0, at_most=True, claim_id="ace-memory")
    assert (above.deviation, above.verdict) == (0.5, "not_reproduced")
    outcome = ClaimOutcome.of("ace", "text", above)
    assert (outcome.deviation, outcome.verdict) == (above.deviation, above.verdict)


def test_a_study_of_one_claim_gives_that_claim_only() -> None:
    found, cpu_seconds = find_study("multitree-entries").remake()
    assert [one.claim_id for one in found] == ["multitree-entries"]
    assert cpu_seconds > 0


def test_quick_begins_with_the_cheapest_of_each_paper() -> None:
    ordered = in_order(PAPERS)
    assert {study.paper for study in ordered[: len(PAPERS)]} == set(PAPERS)
    assert len(ordered) == sum(len(studies_of(paper)) for paper in PAPERS)


def test_quick_leaves_out_what_is_known_to_take_longer() -> None:
    found, left_out = remake_within(3.0, "ace")
    assert [one.claim_id for one in found] == ["ace-memory"]
    assert left_out == [name for name in find_claims("ace") if name != "ace-memory"]


def test_quick_gives_up_a_study_that_takes_longer_than_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_studies, "_cost", lambda _study: 0.0)
    found, left_out = remake_within(0.2, "ace")
    assert "ace-dlrm" in left_out
    assert len(found) + len(left_out) == len(find_claims("ace"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quick_takes_at_most_its_cpu_seconds_from_the_start_of_the_process() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "weft", "reproduce", "--quick", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert QUICK_S == 20
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < QUICK_S
    found = json.loads(done.stdout)
    assert {one["paper"] for one in found["claims"]} == set(PAPERS)
    assert found["left_out"]


def test_claims_are_stored_study_by_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(outcomes.STORED.read_text("utf-8"))
    place = tmp_path / "stored.json"
    place.write_text(json.dumps(whole), "utf-8")
    monkeypatch.setattr(outcomes, "STORED", place)
    outcomes.store(*find_study("ace-memory").remake(), "a commit", "a command")
    again = json.loads(place.read_text("utf-8"))
    ((before, after),) = [
        pair for pair in zip(whole["studies"], again["studies"], strict=True) if pair[0] != pair[1]
    ]
    assert (after["commit"], after["command"]) == ("a commit", "a command")
    assert after["claims"] == before["claims"]
    outcomes.stored.cache_clear()


def test_the_page_of_claims_shows_what_is_stored() -> None:
    text = remake_claims.PAGE.read_text("utf-8")
    wanted = remake_claims.page(text)
    if os.environ.get("WEFT_UPDATE_GOLDEN") == "1":
        remake_claims.PAGE.write_text(wanted, "utf-8")
    else:
        assert text == wanted, "make claims, or tools/remake_claims.py --page, writes it anew"
    assert all(f"`{name}`" in wanted for paper in PAPERS for name in find_claims(paper))
