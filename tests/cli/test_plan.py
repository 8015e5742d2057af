"""``weft plan``, and the verbs that take its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run

from weft import planning
from weft.planning import Plan, load_plan
from weft.schedule.codec import load_schedule
from weft.topology import load_topology

FEW = ("--algorithm", "ring", "--algorithm", "recursive_doubling", "--algorithm", "swing")


@pytest.fixture
def plan_file(weft: Run) -> Path:
    """A plan of two schedules."""
    assert weft("plan", "ring:4", "--size", "4KiB", "--size", "16MiB", *FEW, "-o", "plan.weft").code == 0
    return Path("plan.weft")


def test_a_plan_explains_itself(weft: Run) -> None:
    outcome = weft("plan", "ring:4", "--size", "1MiB", *FEW)
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.startswith("all_reduce on ring:4: 4 ranks, 8 links\n")
    assert "% of the proven bound at 1MiB" in " ".join(outcome.out.split())
    assert "wrote" not in outcome.out


def test_json_is_one_document(weft: Run) -> None:
    found = weft("plan", "ring:4", "--size", "1MiB", *FEW, "--json").document
    assert found["topology"] == "ring:4"
    assert found["algorithm"] in ("ring", "swing")
    assert found["size_bytes"] == 1 << 20
    assert 0 < found["fraction_of_bound"] <= 1
    assert found["ranges"][-1]["last_bytes"] is None


def test_the_file_is_a_plan(weft: Run) -> None:
    outcome = weft("plan", "ring:4", "--size", "1MiB", *FEW, "-o", "plan.weft")
    assert outcome.out.splitlines()[-1].startswith("wrote plan.weft, ")
    assert load_plan("plan.weft").headline.size_bytes == 1 << 20


def test_verify_proves_every_schedule_of_a_plan(weft: Run, plan_file: Path) -> None:
    outcome = weft("verify", plan_file)
    assert outcome.code == 0
    assert outcome.out.count(": correct\n") == len(load_plan(plan_file).schedules) > 1
    document = weft("verify", plan_file, "--json").document
    assert document["verified"] is True
    assert document["plan"] == "all_reduce on ring:4"
    assert len(document["schedules"]) > 1
    assert weft("verify", "-", stdin=plan_file.read_bytes()).code == 0


def test_simulate_runs_what_the_plan_chooses(weft: Run, plan_file: Path) -> None:
    found = load_plan(plan_file)
    for size in (4096, 3_000_000, 1 << 30):
        choice = found.choose(size)
        document = weft("simulate", plan_file, "--size", size, "--json").document
        assert document["digest"] == choice.schedule.digest
        assert document["segment_bytes"] == choice.segment_bytes
    assert (
        found.headline.seconds == weft("simulate", plan_file, "--size", "16MiB", "--json").document["seconds"]
    )
    cut = weft("simulate", plan_file, "--size", "16MiB", "--segment", "1MiB", "--json").document
    assert cut["segment_bytes"] == 1 << 20


def test_export_writes_what_the_plan_chooses_for_a_size(weft: Run, plan_file: Path) -> None:
    found = load_plan(plan_file)
    digests = set()
    for size in ("4KiB", "1MB", "16MiB"):
        choice = found.choose(size)
        document = weft("export", plan_file, "--size", size, "-o", "x.json", "--json").document
        assert document["digest"] == choice.schedule.digest == load_schedule("x.json").digest
        assert document["segment_bytes"] == choice.segment_bytes
        digests.add(document["digest"])
    assert len(digests) > 1
    assert "segment     whole messages\n" in weft("export", plan_file, "--size", "4KiB", "-o", "x.json").out


def test_export_of_a_plan_asks_for_the_size_and_only_that_does(weft: Run, plan_file: Path) -> None:
    outcome = weft("export", plan_file, "-o", "x.json")
    assert outcome.code == 2
    assert outcome.err.startswith("weft: error: plan.weft: is a plan, of ")
    assert "give --size" in outcome.err
    outcome = weft("export", "ring:4", "--algorithm", "ring", "--size", "1MB", "-o", "x.json")
    assert outcome.code == 2
    assert "--size: only a plan chooses by size" in outcome.err
    assert not Path("x.json").exists()


def test_a_plan_stands_for_its_topology(weft: Run, plan_file: Path) -> None:
    assert weft("topology", plan_file, "--json").document["digest"] == load_topology("ring:4").digest
    assert weft("topology", "-", "--json", stdin=plan_file.read_bytes()).document["name"] == "ring:4"
    broken = weft("topology", f"{plan_file}+fail=0>1", "--json").document
    assert (broken["name"], broken["links"]) == ("ring:4+fail=0>1", 7)
    words = ("--size", "1MiB", "--algorithm", "ring", "--json")
    assert weft("compare", plan_file, *words).document["topology"] == "ring:4"
    assert weft("simulate", plan_file, *words).document["topology"] == "ring:4"
    assert weft("plan", plan_file, *words).document["topology"] == "ring:4"


def test_a_plan_is_shown_again(weft: Run, plan_file: Path) -> None:
    found = load_plan(plan_file)
    assert weft("plan", plan_file).out == f"{found.explain()}\n"
    document = {"version": 1, **found.to_dict()}
    assert weft("plan", plan_file, "--json").document == document
    assert weft("plan", "-", "--json", stdin=plan_file.read_bytes()).document == document


def test_a_schedule_is_no_topology(weft: Run) -> None:
    weft("export", "ring:4", "--algorithm", "ring", "-o", "a.weft")
    outcome = weft("topology", "a.weft")
    assert outcome.code == 2
    assert "a schedule, not a topology" in outcome.err


def test_a_warm_start_and_a_time_limit(weft: Run, plan_file: Path) -> None:
    words = ("plan", "ring:4+fail=0>1", "--warm-start", plan_file, "--time-limit", 0, "--json")
    found = weft(*words, *FEW).document
    assert found["complete"] is False
    assert found["schedules"][0]["verified"] is True
    words = ("plan", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--time-limit", "none", "--json")
    assert weft(*words).document["complete"] is True


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("plan", "ring:4", "--size", "0"), "--size 0: there is nothing to send"),
        (("plan", "ring:4", "--size", "4MoB"), "4MoB"),
        (("plan", "ring:4", "--algorithm", "rign"), "did you mean ring"),
        (("plan", "ring:6", "--algorithm", "swing"), "power of two"),
        (("plan", "ring:4", "--collective", "gossip"), "unknown"),
        (("plan", "ring:4", "--root", 4), "root 4"),
        (("plan", "ring:4", "--time-limit", -1), "time-limit"),
        (("plan", "ring:4", "--time-limit", "soon"), "give seconds, such as 300, or none"),
        (("plan", "ring:4", "--warm-start", "no.weft"), "no such file"),
        (("plan", "ring:4", "-o", "no/plan.weft"), "there is no directory no"),
        (("plan", "ring:4", "-o", "-", "--json"), "two outputs"),
        (("plan", "rnig:4"), "did you mean ring"),
    ],
)
def test_bad_use_is_one_line(weft: Run, words: tuple[object, ...], problem: str) -> None:
    outcome = weft(*words)
    assert outcome.code == 2
    assert outcome.err.startswith("weft: error: ")
    assert outcome.err.count("\n") == 1
    assert problem in outcome.err
    assert outcome.out == ""


def test_an_interrupt_keeps_the_plan_so_far(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = planning.plan_steps

    def interrupted(*arguments: Any, **how: Any) -> Iterator[Plan]:
        yield next(whole(*arguments, **how))
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "plan_steps", interrupted)
    outcome = weft("plan", "ring:4", "--size", "1MiB", *FEW, "-o", "plan.weft")
    assert outcome.code == 130
    assert "best plan so far" in outcome.err
    assert "wrote plan.weft" in outcome.out
    assert not load_plan("plan.weft").complete


def test_an_interrupt_before_there_is_a_plan_writes_none(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any, **_how: Any) -> Iterator[Plan]:
        raise KeyboardInterrupt
        yield  # a generator, as plan_steps is

    monkeypatch.setattr(planning, "plan_steps", interrupted)
    outcome = weft("plan", "ring:4", "--size", "1MiB", *FEW, "-o", "plan.weft")
    assert outcome.code == 130
    assert not Path("plan.weft").exists()
