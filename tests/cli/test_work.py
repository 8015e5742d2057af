"""Small files that ask for much work are refused before it is done, with the option that allows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import Run
from support import costly

from weft import _core, plan
from weft.schedule import Schedule
from weft.schedule.codec import save_schedule

SMALL_BYTES = 700_000
ENGINES = ("check_semantics", "find_deadlock", "count_flows", "simulate", "execute_tables")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that works through a schedule may be entered."""

    def enter(*_given: object, **_named: object) -> None:
        pytest.fail("the work was begun")

    for name in ENGINES:
        monkeypatch.setattr(_core, name, enter)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("make", "words", "what"),
    [
        (costly.many_places, ("verify",), "verifying file.weft"),
        (costly.long_ways, ("simulate", "--size", "1MiB"), "simulating costly of 1MiB on ring:4096"),
        (costly.long_routes, ("simulate", "--size", "1MiB"), "simulating costly of 1MiB on ring:4096"),
        (
            costly.many_pairs,
            ("simulate", "--size", "1MiB"),
            "switch:65536: finding the paths of 20,000 pairs of ranks",
        ),
        (
            costly.many_pairs,
            ("simulate", "--size", "1MiB", "--trace", "trace.json"),
            "switch:65536: finding the paths of 20,000 pairs of ranks",
        ),
        (costly.long_routes, ("packets", "--size", "1MiB"), "tables of costly"),
        (costly.many_pairs, ("packets", "--size", "1MiB"), "packets of costly on switch:65536"),
    ],
    ids=lambda value: value.__name__ if callable(value) else value[0] if isinstance(value, tuple) else "",
)
def test_much_work_is_refused_before_it_begins(
    weft: Run, tmp_path: Path, make: Callable[[], Schedule], words: tuple[str, ...], what: str
) -> None:
    path = tmp_path / "file.weft"
    save_schedule(make(), path)
    assert path.stat().st_size < SMALL_BYTES
    outcome = weft(words[0], "file.weft", *words[1:])
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    told = re.fullmatch(
        rf"weft: error: {re.escape(what)}: about ([0-9,]+) operations, of a nanosecond or so each, are more "
        r"than the ([0-9,]+) that Weft does unasked; --max-work ([0-9]e[0-9]+) allows them "
        r"\(in Python, max_work=\)\n",
        outcome.err,
    )
    assert told, outcome.err
    estimate, bound = (int(number.replace(",", "")) for number in told.groups()[:2])
    assert bound < estimate <= float(told[3]) < 2.5 * estimate


@pytest.mark.parametrize("allowed", ["1e12", "none"])
def test_the_option_that_the_refusal_names_lets_it_through(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    save_schedule(costly.long_ways(20), tmp_path / "file.weft")
    words = ("simulate", "file.weft", "--size", "1MiB")
    assert weft(*words, "--max-work", "1e6").code == 2
    assert weft(*words, "--max-work", allowed).code == 0
    assert weft("verify", "file.weft", "--max-work", "1e2").code == 2
    assert weft("export", "file.weft", "-o", "file.json", "--max-work", "1e2").code == 2
    assert weft("export", "file.weft", "-o", "file.json", "--max-work", allowed).code == 0


def test_all_schedules_of_a_plan_count_together(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plan("ring:8", algorithms=["ring", "recursive_doubling"]).save("plan.weft")
    found = weft("verify", "plan.weft", "--json").document["schedules"]
    transfers = [schedule["transfers"] for schedule in found]
    assert len(transfers) == 2
    alone = weft("verify", "plan.weft", "--max-work", "1").err
    enough = alone.split("--max-work ")[1].split()[0]
    both = weft("verify", "plan.weft", "--max-work", enough)
    assert both.code == 2
    assert "plan.weft: schedule 1: reading it: about" in both.err
    monkeypatch.setattr(
        "weft.verification.checking_work._ROW", 1e6
    )  # as if each had a thousand times the ranks
    outcome = weft("verify", "plan.weft", "--max-work", 1e6 * max(transfers) + 1e5)
    assert outcome.code == 2
    assert outcome.err.startswith("weft: error: verifying plan.weft: about")


def test_finer_segments_than_the_work_allows_are_left_out(weft: Run) -> None:
    words = ("simulate", "ring:8", "--algorithm", "ring", "--size", "64MiB", "--json")
    assert weft(*words).document["untried_segment_bytes"] == []
    found = weft(*words, "--max-work", "2e6").document
    assert found["untried_segment_bytes"] == [65536]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much", ""])
def test_work_that_is_no_number_is_refused(weft: Run, text: str) -> None:
    outcome = weft("verify", "ring:4", "--algorithm", "ring", "--max-work", text)
    assert outcome.code == 2
    assert outcome.err == f"weft: error: --max-work {text!r}: give operations, such as 1e11, or none\n"
