"""``weft verify``: proofs, and what is wrong with the place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli.running import Run

from weft.algorithms import registry
from weft.schedule.codec import save_schedule
from weft.topology import load_topology


@pytest.fixture
def wrong_schedule(tmp_path: Path) -> Path:
    """A ring that lost its last transfer."""
    ring = registry.find("ring").build(load_topology("ring:4"), "all_reduce")
    columns = {name: getattr(ring, name)[:-1] for name in ("step", "chunk", "src", "dst", "op", "route")}
    path = tmp_path / "wrong.weft"
    save_schedule(replace(ring, **columns), path)
    return path


def test_a_correct_schedule_is_proved(weft: Run) -> None:
    outcome = weft("verify", "ring:8", "--algorithm", "ring")
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.startswith("ring all_reduce on ring:8: correct\n")
    for check in ("hazard", "semantics", "route", "deadlock"):
        assert f"\n{check}" in outcome.out


def test_json_has_checks_and_size(weft: Run) -> None:
    found = weft("verify", "ring:8", "--algorithm", "ring", "--json").document
    assert found["verified"] is True
    assert found["problem"] is None
    assert found["checks"] == ["hazard", "semantics", "route", "deadlock"]
    assert (found["ranks"], found["steps"], found["transfers"]) == (8, 14, 112)


def test_the_page_of_a_wrong_schedule_says_that_it_is_wrong(
    weft: Run, wrong_schedule: Path, tmp_path: Path
) -> None:
    outcome = weft("verify", str(wrong_schedule), "--report", "page.html")
    assert outcome.code == 1
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '["verdict","WRONG"]' in page
    assert ": WRONG</title>" in page


def test_a_wrong_schedule_is_exit_code_one_with_its_place(weft: Run, wrong_schedule: Path) -> None:
    outcome = weft("verify", wrong_schedule)
    assert outcome.code == 1
    assert "WRONG" in outcome.out.splitlines()[0]
    assert re.fullmatch(
        r"weft: error: the schedule is wrong: semantics at (transfer \d+, )?rank \d+, chunk \d+\n",
        outcome.err,
    )


def test_what_is_wrong_is_told_once(weft: Run) -> None:
    outcome = weft("verify", "ring:4", "--algorithm", "ring", "--slots", 1, "--fused")
    assert " ".join((outcome.out + outcome.err).split()).count("wait for each other") == 1


def test_json_names_the_place_of_what_is_wrong(weft: Run, wrong_schedule: Path) -> None:
    outcome = weft("verify", wrong_schedule, "--json")
    assert outcome.code == 1
    assert outcome.document["verified"] is False
    problem = outcome.document["problem"]
    assert problem["check"] == "semantics"
    assert isinstance(problem["rank"], int)
    assert isinstance(problem["chunk"], int)


def test_too_few_slots_for_a_fused_executor_are_a_deadlock(weft: Run) -> None:
    # A ring whose ranks all need an outgoing slot before they consume one.
    stuck = weft("verify", "ring:4", "--algorithm", "ring", "--slots", 1, "--fused", "--json")
    assert stuck.code == 1
    assert stuck.document["problem"]["check"] == "deadlock"
    assert weft("verify", "ring:4", "--algorithm", "ring", "--slots", 2, "--fused").code == 0


def test_contention_is_counted_on_request(weft: Run) -> None:
    assert "contention" not in weft("verify", "ring:8", "--algorithm", "direct", "--json").document
    found = weft("verify", "ring:8", "--algorithm", "direct", "--contention", "--json").document["contention"]
    assert found["max_flows"] > 1
    assert len(found["link_flows"]) == 16
    assert "contention" in weft("verify", "ring:8", "--algorithm", "direct", "--contention").out


def test_a_schedule_can_come_through_a_pipe(weft: Run) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "a.json")
    assert weft("verify", "-", stdin=Path("a.json").read_bytes()).code == 0
