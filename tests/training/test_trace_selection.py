"""A trace shows what was chosen, never more than viewers can open, and says what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft import limits
from weft.errors import InputError
from weft.topology import load_topology
from weft.training.job import TrainingJob, TrainingResult
from weft.training.trace_selection import TraceSelection, select_trace

RING = load_topology("ring:12")


@pytest.fixture(scope="module")
def job() -> TrainingResult:
    return TrainingJob("multitree-alphagozero", RING, policy="wfbp", algorithm="ring").run(record=True)


def read(path: Path) -> tuple[set[str], list[dict[str, Any]]]:
    """Names of processes and tracks, and spans."""
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    return names, [event for event in events if event["ph"] == "X"]


def test_by_default_the_first_ranks_and_all_links_are_shown(job: TrainingResult, tmp_path: Path) -> None:
    assert job.save_trace(tmp_path / "t.json") == ""
    names, spans = read(tmp_path / "t.json")
    assert {f"rank {rank}" for rank in range(8)} <= names
    assert "rank 8" not in names
    assert {"0->1", "11->0"} <= names
    assert {span["args"].get("iteration") for span in spans} == {None, *range(job.run.iterations)}


def test_chosen_ranks_links_and_iteration_are_all_that_is_shown(job: TrainingResult, tmp_path: Path) -> None:
    left_out = job.save_trace(tmp_path / "t.json", ranks="9,11", links=["3->4", 0], iteration=1)
    assert left_out == ""
    names, spans = read(tmp_path / "t.json")
    assert names == {
        *("rank 9", "rank 11", "links", "computing", "waiting", "collectives"),
        *("3->4", RING.link_name(0)),
    }
    start, end = (job.run.began_ps[job.graph.starts[number], [9, 11]] / 1e6 for number in (1, 2))
    assert all(span["ts"] < end.max() and span["ts"] + span["dur"] > start.min() for span in spans)
    assert {1} <= {span["args"].get("iteration", 1) for span in spans} <= {0, 1, 2}


def test_too_much_is_cut_down_to_an_iteration_and_busy_links(
    job: TrainingResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.save_trace(tmp_path / "all.json")
    everything = len(read(tmp_path / "all.json")[1])
    last = job.run.iterations - 2
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", everything // 2)
    assert job.save_trace(tmp_path / "t.json") == f"all iterations but number {last}"
    assert len(read(tmp_path / "t.json")[1]) <= everything // 2
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", everything // 8)
    assert "busiest" in job.save_trace(tmp_path / "t.json")
    assert len(read(tmp_path / "t.json")[1]) <= everything // 8 + 8 * len(job.layers)  # waits come on top
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", 40)
    assert "all ranks but" in job.save_trace(tmp_path / "t.json")


def test_a_job_with_too_many_spans_is_traced_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_RECORDED_SPANS", 10)
    found = TrainingJob("multitree-alphagozero", "ring:3", policy="wfbp").run(record=True)
    assert found.run.flow.spans is None
    assert found.save_trace(tmp_path / "t.json") == "links and endpoints, which have more than 10 spans"
    names, spans = read(tmp_path / "t.json")
    assert names == {"rank 0", "rank 1", "rank 2", "computing", "waiting", "collectives"}
    assert spans


def test_an_iteration_that_was_not_simulated_is_replaced_by_the_last(
    job: TrainingResult, tmp_path: Path
) -> None:
    assert "iteration 900, which was not simulated" in job.save_trace(tmp_path / "t.json", iteration=900)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({"ranks": "12"}, "there are ranks 0 to 11"),
        ({"ranks": "3-1"}, "the range '3-1' is reversed; write 1-3"),
        ({"ranks": "3-12"}, "there are ranks 0 to 11"),
        ({"ranks": "x"}, "neither a rank nor a range"),
        ({"ranks": [-1]}, "neither a rank nor a range"),
        ({"ranks": "9" * 500}, "neither a rank nor a range"),
        ({"ranks": ()}, "none are given"),
        ({"links": "0->5"}, "there is no link '0->5'; there are 0->1"),
        ({"links": []}, "none are given"),
        ({"iteration": -1}, "counted from 0"),
    ],
)
def test_what_is_not_there_is_refused(chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        select_trace(RING, **chosen)


def test_ranges_and_names_are_read() -> None:
    assert select_trace(RING) == TraceSelection()
    assert select_trace(RING, "0, 2-4,3").ranks == (0, 2, 3, 4)
    assert select_trace(RING, [5]).ranks == (5,)
    assert select_trace(RING, links="0,0->1").links == (0,)
