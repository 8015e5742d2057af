"""One's own algorithm or schedule wherever a command takes an algorithm."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.running import Run

import weft as root_package
from weft.algorithms import ring
from weft.errors import InputError, VerificationError
from weft.planning import compare, load_plan, plan
from weft.schedule import Schedule, ScheduleBuilder
from weft.topology import Topology, load_topology

SCRIPT = """
import weft
print("printed by the script")

def star(topology, *, center: int = 0):
    print("printed by the function")
    builder = weft.ScheduleBuilder(topology, "all_reduce", "star", chunks=1)
    others = [rank for rank in range(topology.ranks) if rank != center]
    for step, rank in enumerate(others):
        builder.add(step=step, chunk=0, src=rank, dst=center, op="reduce")
        builder.add(step=len(others) + step, chunk=0, src=center, dst=rank, op="copy")
    return builder.build()

def wrong(topology):
    builder = weft.ScheduleBuilder(topology, "all_reduce", "wrong", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op="reduce")
    return builder.build()

def broken(topology):
    return topology.no_such_thing
"""


def wrong(topology: Topology) -> Schedule:
    builder = ScheduleBuilder(topology, "all_reduce", "wrong", chunks=1)
    builder.add(step=0, chunk=0, src=0, dst=1, op="reduce")
    return builder.build()


@pytest.fixture
def own(weft: Run, tmp_path: Path) -> Run:
    """Run ``weft`` beside a script."""
    (tmp_path / "mine.py").write_text(SCRIPT, "utf-8")
    return weft


def test_compare_shows_ones_own_beside_others_and_keeps_its_prints_apart(own: Run) -> None:
    assert own("export", "ring:4", "--algorithm", "mine.py:star:center=1", "-o", "mine.weft").code == 0
    names = ("mine.py:star", "mine.weft", "ring")
    words = [word for name in names for word in ("--algorithm", name)]
    outcome = own("compare", "ring:4", "--size", "1MiB", "--json", *words)
    rows = {row["algorithm"]: row for row in outcome.document["results"]}
    assert set(rows) == set(names)
    assert all(row["verified"] and row["seconds"] for row in rows.values())
    assert outcome.err.splitlines() == ["printed by the script", "printed by the function"]


def test_compare_of_four_sizes_runs_the_script_once(own: Run) -> None:
    outcome = own("compare", "ring:4", "--algorithm", "mine.py:star")
    assert outcome.code == 0
    assert outcome.err.count("printed by the script") == 1


def test_all_adds_those_of_weft(own: Run) -> None:
    words = ("--algorithm", "mine.py:star", "--algorithm", "all")
    rows = own("compare", "ring:4", "--size", "1MiB", "--json", *words).document["results"]
    assert {"mine.py:star", "ring", "forest"} <= {row["algorithm"] for row in rows}


def test_compare_shows_a_wrong_schedule_with_the_reason_and_without_a_time(own: Run) -> None:
    words = ("--algorithm", "mine.py:wrong", "--algorithm", "ring")
    outcome = own("compare", "ring:4", "--size", "1MiB", "--json", *words)
    assert outcome.code == 1
    right, refused = outcome.document["results"]
    assert (right["algorithm"], right["problem"]) == ("ring", None)
    assert (refused["verified"], refused["seconds"]) == (False, None)
    assert "rank 0, chunk 0" in refused["problem"]
    assert "weft: error: mine.py:wrong: semantics: rank 0, chunk 0" in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "ring:4", "--size", "1MiB"),
        ("plan", "ring:4", "--size", "1MiB"),
        ("verify", "ring:4"),
        ("simulate", "ring:4", "--size", "1MiB"),
        ("packets", "ring:4", "--size", "64KiB"),
        ("export", "ring:4", "-o", "x.weft"),
        ("train", "ring:4", "--model", "resnet50"),
    ],
    ids=lambda words: words[0],
)
def test_an_error_of_the_script_names_its_line_in_every_command(own: Run, words: tuple[str, ...]) -> None:
    outcome = own(*words, "--algorithm", "mine.py:broken")
    assert (outcome.code, outcome.out) == (2, "")
    error = outcome.err.splitlines()[-1]
    assert error.startswith("weft: error: mine.py:broken failed: ")
    line = SCRIPT.splitlines().index("    return topology.no_such_thing") + 1
    assert f"mine.py:{line}: AttributeError: " in error
    assert "bug" not in outcome.err


def test_an_error_whose_message_cannot_be_printed_is_still_the_scripts_own(weft: Run, tmp_path: Path) -> None:
    script = """
class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def mute(topology):
    raise Mute
"""
    (tmp_path / "mute.py").write_text(script, "utf-8")
    outcome = weft("compare", "switch:4", "--size", "1MiB", "--algorithm", "mute.py:mute")
    assert outcome.code == 2
    assert outcome.err.rstrip().endswith("mute.py:7: Mute (its message cannot be printed)")


def test_plan_chooses_from_ones_own_and_skips_what_is_wrong(own: Run) -> None:
    words = ("--algorithm", "mine.py:star", "--algorithm", "mine.py:wrong", "--size", "1MiB")
    outcome = own("plan", "ring:4", *words, "-o", "plan.weft")
    assert outcome.code == 0
    assert "mine.py:wrong: is not correct: semantics: rank 0, chunk 0" in " ".join(outcome.out.split())
    assert load_plan("plan.weft").algorithm == "mine.py:star"
    assert own("verify", "plan.weft").code == 0


def test_a_plan_of_nothing_but_a_wrong_schedule_fails_the_check(own: Run) -> None:
    outcome = own("plan", "ring:4", "--size", "1MiB", "--algorithm", "mine.py:wrong")
    assert outcome.code == 1
    assert "mine.py:wrong on ring:4 made a wrong schedule" in outcome.err


def test_train_simulates_ones_own_and_the_halves_of_it(own: Run) -> None:
    words = ("train", "ring:4", "--model", "resnet50", "--policy", "dear", "--iterations", "2", "--json")
    found = own(*words, "--algorithm", "mine.py:star").document
    assert found["algorithms"] == {"reduce_scatter": ["star"], "all_gather": ["star"]}
    outcome = own(*words, "--algorithm", "mine.py:wrong")
    assert outcome.code == 2  # half of it is not even two halves
    outcome = own(*words[:4], "--policy", "ddp", "--algorithm", "mine.py:wrong")
    assert outcome.code == 1
    assert "wrong made a wrong schedule" in outcome.err


def test_simulate_and_packets_run_ones_own(own: Run) -> None:
    for words in (("simulate", "ring:4", "--size", "1MiB"), ("packets", "ring:4", "--size", "64KiB")):
        found = own(*words, "--algorithm", "mine.py:star", "--json").document
        assert (found["algorithm"], found["verified"]) == ("star", True)


def test_bench_says_what_to_do_instead(own: Run) -> None:
    outcome = own("bench", "-R", "2", "--algorithm", "mine.py:star")
    assert outcome.code == 2
    assert "only a name of an algorithm can stand here" in outcome.err


def test_python_compares_functions_schedules_and_names() -> None:
    topology = load_topology("ring:4")

    def mine(topology: Topology) -> Schedule:
        return ring.all_reduce(topology)

    found = compare(topology, "1MiB", algorithms=[mine, ring.all_reduce(topology), "ring", wrong])
    assert [row.algorithm for row in found.results] == ["mine", "ring", "schedule:ring", "wrong"]
    assert [row.verified for row in found.results] == [True, True, True, False]
    assert len({row.seconds for row in found.results[:3]}) == 1


def test_python_plans_with_functions_and_raises_for_wrong_ones() -> None:
    def mine(topology: Topology) -> Schedule:
        return ring.all_reduce(topology)

    found = plan("ring:4", "1MiB", algorithms=[mine, wrong])
    assert found.algorithm == "mine"
    assert [refusal.algorithm for refusal in found.skipped] == ["wrong"]
    with pytest.raises(VerificationError, match="wrong on ring:4 made a wrong schedule"):
        plan("ring:4", "1MiB", algorithms=wrong)


def test_python_gets_the_error_of_its_function_as_the_cause() -> None:
    def broken(topology: Topology) -> Schedule:
        raise KeyError(topology.name)

    with pytest.raises(InputError, match=r"broken failed: .*test_own_algorithm\.py:\d+: KeyError") as caught:
        compare("ring:4", "1MiB", algorithms=broken)
    assert isinstance(caught.value.__cause__, KeyError)


def test_python_trains_with_a_schedule() -> None:
    schedule = ring.all_reduce(load_topology("ring:4"))
    found = root_package.train("resnet50", "ring:4", policy="ddp", algorithm=schedule, iterations=2)
    assert found.algorithms() == {"all_reduce": ["ring"]}
