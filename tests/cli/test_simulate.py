"""``weft simulate``: the time of one schedule, and why it is what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.running import Run

import weft as weft_library
from weft.bounds.collective_bound import lower_bound
from weft.schedule import ScheduleBuilder
from weft.schedule.codec import save_schedule
from weft.topology import load_topology

RING = ("ring:4@bw=1GB/s,lat=1us", "--algorithm", "ring")


def test_a_ring_takes_what_the_closed_form_says(weft: Run) -> None:
    found = weft("simulate", *RING, "--size", "4MB", "--segment", "none", "--json").document
    assert found["time_ps"] == 6 * (10**9 + 10**6)
    assert found["seconds"] == pytest.approx(0.006006)
    assert found["algbw_GBps"] == pytest.approx(4e6 / 0.006006 / 1e9)
    assert found["busbw_GBps"] == pytest.approx(1.5 * found["algbw_GBps"])
    assert found["segment_bytes"] is None
    assert len(found["link_busy_ps"]) == 8
    assert len(found["rank_finish_ps"]) == 4
    assert found["critical_path"][-1]["end_ps"] == found["time_ps"]


def test_the_table_names_time_links_rank_and_path(weft: Run) -> None:
    outcome = weft("simulate", *RING, "--size", "4MB", "--segment", "none")
    assert outcome.code == 0
    assert outcome.err == ""
    for text in (
        "6.006 ms",
        "busbw",
        "last rank",
        "busiest link",
        "critical path",
        "4 of 8 links carry nothing",
    ):
        assert text in outcome.out


def test_the_bound_stands_beside_the_time(weft: Run) -> None:
    document = weft("simulate", *RING, "--size", "4MB", "--segment", "none", "--json").document
    bound = lower_bound(load_topology(RING[0]), "all_reduce", 4_000_000)
    assert document["bound_seconds"] == bound.seconds
    assert document["bound_kind"] == bound.kind
    assert document["fraction_of_bound"] == bound.seconds / document["seconds"]
    assert document["verified"] is True
    shown = weft("simulate", *RING, "--size", "4MB", "--segment", "none").out
    assert f"of bound   {100 * document['fraction_of_bound']:.1f} %\n" in shown


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_the_bound_is_that_of_the_root(weft: Run, collective: str) -> None:
    spec = "hosts:2,2@uplink=10GB/s/1GB/s"
    words = ("--algorithm", "ring", "--collective", collective, "--root", 3)
    document = weft("simulate", spec, *words, "--size", "4MB", "--json").document
    assert document["bound_seconds"] == lower_bound(load_topology(spec), collective, 4_000_000, 3).seconds


def test_a_wrong_schedule_is_warned_of(weft: Run) -> None:
    builder = ScheduleBuilder("ring:4", "all_reduce", "mine")
    builder.add(step=0, chunk=range(4), src=0, dst=1, op="reduce")
    save_schedule(builder.build(), "wrong.weft")
    outcome = weft("simulate", "wrong.weft", "--size", "4MB")
    assert outcome.code == 0
    assert outcome.err.startswith("weft: warning: not correct: semantics: ")
    assert outcome.err.count("\n") == 1
    document = weft("simulate", "wrong.weft", "--size", "4MB", "--json").document
    assert document["verified"] is False
    assert document["fraction_of_bound"] is None


def test_slow_runs_have_their_speed_in_small_units(weft: Run) -> None:
    outcome = weft("simulate", *RING, "--size", "8", "--segment", "none")
    assert "algbw      1.33 MB/s\n" in outcome.out


def test_a_topology_file_asks_for_an_algorithm(weft: Run) -> None:
    weft("topology", "ring:4", "--toml", "my.toml")
    for name in ("my.toml", "ring:4"):
        outcome = weft("simulate", name, "--size", "1MB")
        assert outcome.code == 2
        assert f"{name} is a topology; give --algorithm" in outcome.err


def test_a_file_gives_the_same_time_as_building_on_the_spot(weft: Run) -> None:
    weft("export", *RING, "-o", "a.weft")
    built = weft("simulate", *RING, "--size", "4MB", "--json").document
    read = weft("simulate", "a.weft", "--size", "4MB", "--json").document
    assert built["time_ps"] == read["time_ps"]


def test_auto_is_never_slower_than_any_single_size(weft: Run) -> None:
    words = ("simulate", "torus:4x4", "--algorithm", "double_binary_tree", "--size", "16MiB", "--json")
    best = weft(*words).document["time_ps"]
    for size in ("none", "4MiB", "1MiB", "256KiB", "64KiB"):
        assert best <= weft(*words, "--segment", size).document["time_ps"]


def test_the_rule_of_sharing_is_passed_on_and_shown(weft: Run) -> None:
    words = ("simulate", *RING, "--size", "4MB", "--sharing", "fluid")
    outcome = weft(*words)
    assert outcome.code == 0
    assert "fluid sharing" in outcome.out
    assert weft(*words, "--json").document["sharing"] == "fluid"


@pytest.mark.parametrize("size", ["64KiB", "16MiB"])
def test_the_command_and_the_function_take_the_same_time(weft: Run, size: str) -> None:
    printed = weft("simulate", "torus:4x4", "--algorithm", "multitree", "--size", size, "--json").document
    schedule = weft_library.algorithms.multitree.all_reduce(weft_library.load_topology("torus:4x4"))
    result = weft_library.simulate(schedule, size)
    assert (printed["time_ps"], printed["segment_bytes"]) == (result.time_ps, result.segment_bytes)
    assert weft_library.simulate(schedule, size, record=True).time_ps == result.time_ps


def test_a_trace_is_written(weft: Run) -> None:
    outcome = weft("simulate", *RING, "--size", "4MB", "--trace", "trace.json")
    assert outcome.code == 0
    assert "wrote trace.json" in outcome.out
    assert json.loads(Path("trace.json").read_bytes())["traceEvents"]


def test_a_trace_too_large_to_show_is_refused_before_the_run(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.simulation.simulator.run_once", None)
    for cut in ("4KiB", "auto"):
        monkeypatch.setattr("weft.limits.MAX_TRACE_EVENTS", 500)
        outcome = weft(
            *(
                "simulate",
                "ring:8",
                "--algorithm",
                "ring",
                "--size",
                "64MiB",
                "--segment",
                cut,
                "--trace",
                "t",
            )
        )
        assert outcome.code == 2
        assert "spans is more than the 500 that viewers can show" in outcome.err
    assert not Path("t").exists()


def test_cuts_beyond_the_budget_are_named(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("simulate", *RING, "--size", "64MiB")
    assert weft(*words, "--json").document["untried_segment_bytes"] == []
    monkeypatch.setattr("weft.simulation.segment_sizes.SEGMENT_BUDGET", 2000)
    assert weft(*words, "--json").document["untried_segment_bytes"] == [64 << 10]
    assert "not tried, because they would be too many: 64KiB" in " ".join(weft(*words).out.split())


def test_a_trace_on_standard_output_stands_alone(weft: Run) -> None:
    assert weft("simulate", *RING, "--size", "4MB", "--trace", "-").document["traceEvents"]


def test_a_time_beyond_the_clock_is_refused_and_not_wrapped_around(weft: Run) -> None:
    outcome = weft("simulate", "ring:4@bw=1B/s", "--algorithm", "ring", "--size", "1PiB")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
