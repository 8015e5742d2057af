"""``weft compare`` and `weft.planning.comparison`: the table, the document, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from cli.running import Run

from weft.algorithms import registry
from weft.errors import InputError, UnsupportedError
from weft.planning import compare
from weft.planning.budget import Budget
from weft.schedule import Schedule
from weft.simulation.segment_sizes import SEGMENT_BUDGET, segment_candidates
from weft.topology import Topology, load_topology

DOCUMENT = [
    "version",
    "topology",
    "size_bytes",
    "bound_seconds",
    "bound_kind",
    "skipped",
    "results",
    "collective",
    "sharing",
    "bound_explanation",
    "bound_condition",
    "best_of_libraries",
    "gain_over_libraries",
    "nccl_estimate",
]
ROW = [
    "algorithm",
    "seconds",
    "steps",
    "transfers",
    "segment_bytes",
    "verified",
    "fraction_of_bound",
    "algbw_GBps",
    "busbw_GBps",
    "synthesis_seconds",
    "simulation_seconds",
    "untried_segment_bytes",
    "label",
    "library",
    "problem",
]


def test_the_document_has_exactly_these_fields(weft: Run) -> None:
    outcome = weft("compare", "ring:8", "--size", "1MiB", "--json")
    assert outcome.code == 0
    assert outcome.err == ""
    found = outcome.document
    assert list(found) == DOCUMENT
    assert found["topology"] == "ring:8"
    assert found["size_bytes"] == 1 << 20
    assert all(list(row) == ROW for row in found["results"])
    assert all(list(row) == ["algorithm", "reason"] for row in found["skipped"])


@pytest.mark.parametrize("spec", ["torus:4x4", "hosts:8,4,2", "ring:6", "fattree:16", "mesh:3x5"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast"])
def test_every_algorithm_is_timed_or_skipped_and_none_beats_the_bound(
    weft: Run, spec: str, collective: str
) -> None:
    found = weft("compare", spec, "--size", "1MiB", "--collective", collective, "--json").document
    names = [row["algorithm"] for row in found["results"]] + [row["algorithm"] for row in found["skipped"]]
    assert sorted(names) == sorted(registry.ALGORITHMS)
    offering = {line.name for line in registry.for_collective(collective)}
    lacking = {row["algorithm"] for row in found["skipped"] if row["reason"] == f"has no {collective}"}
    assert lacking == set(registry.ALGORITHMS) - offering
    seconds = [row["seconds"] for row in found["results"]]
    assert seconds == sorted(seconds)
    for row in found["results"]:
        assert row["verified"] is True
        assert 0 < row["fraction_of_bound"] <= 1 + 1e-9
        assert row["fraction_of_bound"] == pytest.approx(found["bound_seconds"] / row["seconds"])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal(weft: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    outcome = weft("compare", "torus:4x4@bw=16GB/s,lat=150ns", "--size", "64MiB")
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= columns
    assert "…" not in outcome.out
    for name in ("double_binary_tree", "bound", "busiest", "skipped", "veri"):
        assert name in outcome.out


@pytest.mark.parametrize("columns", ["0", "1", "20", "40", "60", "100"])
@pytest.mark.parametrize(
    "words",
    [
        ("compare", "hosts:8,4,2@uplink=10GB/s", "--size", "64MiB"),
        ("topology", "hosts:8,4,2@uplink=10GB/s", "--routes", "0", "9"),
        ("simulate", "hosts:8,4,2@uplink=10GB/s", "--algorithm", "ring", "--size", "64MiB"),
        ("verify", "hosts:8,4,2@uplink=10GB/s", "--algorithm", "ring", "--contention"),
        ("doctor",),
    ],
    ids=lambda words: words[0],
)
def test_a_narrow_terminal_loses_columns_and_no_digits(
    weft: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], columns: str
) -> None:
    whole = weft(*words).out
    monkeypatch.setenv("COLUMNS", columns)
    narrow = weft(*words)
    assert (narrow.code, narrow.err) == (0, "")
    assert "…" not in narrow.out
    if words[0] != "doctor":  # which describes the machine, and tells how long it took
        numbers = re.compile(r"[0-9][0-9.,]*")
        steady = re.sub(r"[0-9.]+(?=\s+CPU seconds)", "", narrow.out)
        assert set(numbers.findall(steady)) <= set(numbers.findall(whole))


def test_a_narrow_table_keeps_name_time_and_verdict(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    outcome = weft("compare", "ring:4", "--size", "1MiB", "--algorithm", "ring").out
    assert re.search(r"^ring +[0-9.]+ .*yes$", outcome, re.MULTILINE)
    assert "the terminal is too narrow for: " in outcome
    assert "transfers" in outcome


def test_algorithms_skipped_for_one_reason_are_one_line(weft: Run) -> None:
    outcome = weft("compare", "ring:4", "--size", "1MiB", "--collective", "all_to_all")
    skipped = " ".join(outcome.out.partition("skipped")[2].split())
    assert skipped == ", ".join(set_aside("direct")) + ": has no all_to_all"


def set_aside(*names: str) -> list[str]:
    return [name for name in registry.ALGORITHMS if name not in names]


def test_one_algorithm_over_a_limit_does_not_end_the_comparison(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("compare", "torus:4x4", "--size", "64MiB", "--segment", "none", "--json")
    monkeypatch.setattr("weft.limits.MAX_SEGMENTS", 100)
    found = weft(*words).document
    assert "recursive_doubling" in [row["algorithm"] for row in found["results"]]
    assert "more than 100" in {row["algorithm"]: row["reason"] for row in found["skipped"]}["ring"]


def test_cuts_beyond_the_budget_are_marked(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("compare", "torus:4x4@lat=0s", "--size", "64MiB", "--algorithm", "ring", "--algorithm", "bucket")
    rows = {row["algorithm"]: row for row in weft(*words, "--json").document["results"]}
    assert all(row["untried_segment_bytes"] == [] for row in rows.values())
    assert "*" not in weft(*words).out
    monkeypatch.setattr("weft.simulation.segment_sizes.SEGMENT_BUDGET", 2000)
    rows = {row["algorithm"]: row for row in weft(*words, "--json").document["results"]}
    assert rows["ring"]["untried_segment_bytes"] == [256 << 10, 64 << 10]
    assert rows["bucket"]["untried_segment_bytes"] == []  # as fast as the bound allows without any cut
    table = " ".join(weft(*words).out.split())
    assert re.search(r"ring .* (-|[0-9]+MiB)\* yes", table)
    assert "* 64KiB, 256KiB not tried: more than 2,000 segments, or no time was left" in table


def test_what_does_not_fit_into_the_time_is_skipped_and_the_cheapest_is_tried(weft: Run) -> None:
    words = ("compare", "torus:4x4", "--size", "64MiB", "--time-limit", "0.000001")
    found = weft(*words, "--json").document
    assert [row["algorithm"] for row in found["results"]] == ["recursive_doubling"]
    assert found["results"][0]["untried_segment_bytes"] == [4 << 20, 1 << 20, 256 << 10, 64 << 10]
    late = [row["algorithm"] for row in found["skipped"] if "time limit" in row["reason"]]
    assert {"ring", "bucket", "multitree"} <= set(late)
    assert "not tried, the time limit of 1e-06 s is too short" in " ".join(weft(*words).out.split())
    assert len(compare("torus:4x4", "1KiB", time_limit=None).results) > 10


def test_what_nccl_would_run_is_a_row_and_the_gain_over_it_a_line(weft: Run) -> None:
    words = (
        "compare",
        "dgx-h100:2",
        "--size",
        "64MiB",
        "--algorithm",
        "nccl_ring",
        "--algorithm",
        "multitree",
    )
    found = weft(*words, "--json").document
    assert {row["label"]: row["library"] for row in found["results"]} == {
        "nccl ring (8 channels)": "nccl",
        "multitree": None,
    }
    seconds = {row["algorithm"]: row["seconds"] for row in found["results"]}
    assert found["best_of_libraries"] == "nccl ring (8 channels)"
    assert found["gain_over_libraries"] == pytest.approx(seconds["nccl_ring"] / seconds["multitree"])
    shown = " ".join(weft(*words).out.split())
    gain = f"{found['gain_over_libraries']:.2f}"
    assert f"multitree is {gain} times as fast" in shown


def test_a_library_that_is_faster_is_said_to_be_so(weft: Run) -> None:
    words = ("compare", "dgx-h100:2", "--size", "64MiB", "--algorithm", "nccl_ring", "--algorithm", "ring")
    shown = " ".join(weft(*words).out.split())
    assert "others best of a library, without NVLS and SHARP: nccl ring (8 channels)" in shown
    assert "; ring takes " in shown
    assert "times as long" in shown


def test_candidates_with_few_transfers_come_first() -> None:
    seen: list[str] = []
    found = compare("torus:8x8", "64KiB", progress=lambda name, *_: seen.append(name))
    transfers = {row.algorithm: row.transfers for row in found.results}
    assert seen[0] == "recursive_doubling"
    assert transfers[seen[-1]] == max(transfers.values())


def test_time_is_learned_from_what_was_done() -> None:
    now = [0.0]
    budget = Budget(10.0, clock=lambda: now[0])
    assert budget.allows(9.0)
    budget.learn(expected=1.0, spent=4.0)
    assert not budget.allows(9.0)
    assert budget.allows(2.0)
    now[0] = 11.0
    assert not budget.allows(0.0)
    assert Budget(None).allows(1e9)


def test_skipped_algorithms_are_listed_with_their_reason(weft: Run) -> None:
    outcome = weft("compare", "ring:6", "--size", "1MiB")
    assert "skipped" in outcome.out
    assert "swing" in outcome.out


def test_named_algorithms_are_the_only_ones(weft: Run) -> None:
    words = ("compare", "ring:6", "--size", "1MiB", "--json", "--algorithm", "ring", "--algorithm", "swing")
    found = weft(*words).document
    assert [row["algorithm"] for row in found["results"]] == ["ring"]
    assert [row["algorithm"] for row in found["skipped"]] == ["swing"]


def test_the_root_is_passed_on(weft: Run) -> None:
    words = ("compare", "mesh:5", "--size", "1MiB", "--collective", "broadcast", "--algorithm", "direct")
    at_the_end = weft(*words, "--json", "--root", 0).document["results"][0]["seconds"]
    in_the_middle = weft(*words, "--json", "--root", 2).document["results"][0]["seconds"]
    assert in_the_middle < at_the_end


@pytest.mark.parametrize("option", [("--sharing", "fluid"), ("--segment", "none"), ("--segment", "64KiB")])
def test_rules_of_the_run_are_accepted(weft: Run, option: tuple[str, str]) -> None:
    words = ("compare", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--json")
    row = weft(*words, *option).document["results"][0]
    assert row["verified"] is True
    if option[0] == "--segment":
        assert row["segment_bytes"] == (65536 if option[1] == "64KiB" else None)


@pytest.fixture
def broken_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that forgets its last transfer."""
    honest = registry.Algorithm.build

    def build(
        self: registry.Algorithm, topology: Topology, collective: str, root: int = 0, **options: Any
    ) -> Schedule:
        schedule = honest(self, topology, collective, root, **options)
        if self.name != "ring":
            return schedule
        columns: dict[str, Any] = {
            name: getattr(schedule, name)[:-1] for name in ("step", "chunk", "src", "dst", "op", "route")
        }
        return replace(schedule, **columns)

    monkeypatch.setattr(registry.Algorithm, "build", build)


@pytest.mark.usefixtures("broken_ring")
def test_a_wrong_schedule_is_last_without_a_time_and_exit_code_one(weft: Run) -> None:
    words = ("compare", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--algorithm", "direct")
    outcome = weft(*words, "--json")
    assert outcome.code == 1
    first, last = outcome.document["results"]
    assert (first["algorithm"], first["verified"]) == ("direct", True)
    assert (last["algorithm"], last["verified"], last["seconds"]) == ("ring", False, None)
    assert outcome.err.startswith("weft: error: ring: semantics: ")
    table = weft(*words)
    assert table.code == 1
    assert "NO" in table.out


def test_the_library_gives_what_the_command_prints(weft: Run) -> None:
    found = compare("ring:4", "1MiB", algorithms=["ring", "direct"])
    assert found.best is not None
    assert found.best is found.results[0]
    assert found.verified
    printed = weft(
        "compare", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--algorithm", "direct", "--json"
    )
    cost = {"synthesis_seconds", "simulation_seconds"}
    for mine, its in zip(found.to_dict()["results"], printed.document["results"], strict=True):
        assert {k: v for k, v in mine.items() if k not in cost} == {
            k: v for k, v in its.items() if k not in cost
        }


def test_the_bottleneck_is_the_slow_uplink() -> None:
    topology = load_topology("hosts:4,4@intra=100GB/s,uplink=1GB/s/1GB/s")
    found = compare(topology, "64MiB", algorithms=["hierarchical"])
    assert found.best is not None
    assert found.best.bottleneck is not None
    link, share = found.best.bottleneck
    assert topology.bandwidth[link] == 10**9
    assert 0.5 < share <= 1


def test_progress_is_reported_for_every_candidate() -> None:
    seen: list[tuple[str, int, int]] = []
    compare("ring:4", "1KiB", algorithms=["ring", "direct"], progress=lambda *now: seen.append(now))
    assert seen == [("ring", 0, 2), ("direct", 1, 2)]


def test_nothing_that_applies_is_an_error_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match="swing"):
        compare("ring:6", "1MiB", algorithms=["swing"])


@pytest.mark.parametrize(
    "bad",
    [
        {"size": 0},
        {"size": -1},
        {"collective": "gather"},
        {"algorithms": ["nope"]},
        {"root": 4},
        {"root": -1},
        {"segment_bytes": 0},
        {"segment_bytes": "fine"},
        {"sharing": "nicely"},
        {"time_limit": 0},
        {"time_limit": float("nan")},
        {"time_limit": -1.0},
    ],
)
def test_the_library_refuses_bad_arguments(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        compare(**({"topology": "ring:4", "size": "1MiB"} | bad))


def test_segment_sizes_cut_something_and_not_too_finely() -> None:
    ring = registry.find("ring").build(load_topology("ring:4"), "all_reduce")
    assert segment_candidates(ring, 4096)[0] == [None]
    assert segment_candidates(ring, 4 << 20)[0] == [None, 256 << 10, 64 << 10]
    assert segment_candidates(ring, 64 << 20)[0] == [None, 4 << 20, 1 << 20, 256 << 10, 64 << 10]
    huge = segment_candidates(ring, 1 << 40)[0]
    assert all(size is None or 24 * ((1 << 38) // size) <= SEGMENT_BUDGET for size in huge)


def test_without_a_size_four_sizes_stand_side_by_side(weft: Run) -> None:
    outcome = weft("compare", "ring:4@bw=1GB/s", "--algorithm", "ring", "--algorithm", "direct")
    assert outcome.code == 0
    heads = next(line for line in outcome.out.splitlines() if "KiB" in line).split()
    assert [word for word in heads if word.endswith("iB")] == ["64KiB", "1MiB", "16MiB", "256MiB"]
    row = next(line.split() for line in outcome.out.splitlines() if line.startswith("ring "))
    assert len(row) == 1 + 2 * 4
    assert "--size SIZE shows one of them in full" in outcome.out


def test_sizes_that_are_named_stand_side_by_side_and_are_few(weft: Run) -> None:
    words = ("compare", "ring:4", "--algorithm", "ring", "--size", "2MiB", "--size", "1MiB")
    assert "1MiB" in weft(*words).out
    assert "2MiB" in weft(*words).out
    assert [one["size_bytes"] for one in weft(*words, "--json").document["sizes"]] == [1 << 20, 2 << 20]
    many = [word for size in range(1, 10) for word in ("--size", f"{size}KiB")]
    refused = weft("compare", "ring:4", *many)
    assert (refused.code, refused.err) == (2, "weft: error: --size: 9 sizes; at most 8 stand side by side\n")


def test_the_document_of_four_sizes_has_that_of_each(weft: Run) -> None:
    words = ("compare", "ring:4", "--algorithm", "ring", "--json")
    found = weft(*words).document
    assert found["version"] == 1
    assert [one["size_bytes"] for one in found["sizes"]] == [64 << 10, 1 << 20, 16 << 20, 256 << 20]
    alone = weft(*words, "--size", "1MiB").document
    timed = ("synthesis_seconds", "simulation_seconds", "verification_seconds")
    for one in (alone, found["sizes"][1]):
        for row in one["results"]:
            for name in timed:
                row.pop(name, None)
    assert alone.pop("version") == 1
    assert found["sizes"][1] == alone


def test_options_of_an_algorithm_make_a_row_of_their_own(weft: Run) -> None:
    names = ["multitree", "multitree:paper_order=true"]
    words = [word for name in names for word in ("--algorithm", name)]
    document = weft("compare", "torus:4x4", "--size", "64KiB", *words, "--json").document
    steps = {row["algorithm"]: row["steps"] for row in document["results"]}
    assert steps == {"multitree": 8, "multitree:paper_order=true": 10}
    assert all(row["verified"] for row in document["results"])


def test_the_bound_says_its_condition(weft: Run) -> None:
    found = weft("compare", "switch:4", "--size", "1MiB", "--algorithm", "ring")
    assert "(bandwidth: singletons; sums are made at ranks)" in " ".join(found.out.split())
    assert "(sums are made at ranks)" in " ".join(
        weft("compare", "switch:4", "--algorithm", "ring").out.split()
    )
    document = compare("switch:4", "1MiB", algorithms=["ring"]).to_dict()
    assert document["bound_condition"] == "sums are made at ranks"
