"""Traces: well-formed, complete, and never two spans over each other on one track."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.schedules import ring_all_reduce

from weft import limits
from weft.errors import InputError, LimitError
from weft.export import trace_events, write_trace
from weft.export.simulation_trace import check_trace
from weft.schedule import Op, Schedule, ScheduleBuilder
from weft.simulation import Timeline, simulate
from weft.topology import load_topology


@dataclass
class Result:
    timeline: Timeline | None


def recorded(*spans: tuple[int, int, int, int, int, int]) -> Result:
    """Spans are (row, segment, bytes, link, start, end)."""
    table = np.array(spans, np.int64).reshape(-1, 6)
    row, segment, size, link, start, end = table.T
    return Result(
        Timeline(row.astype(np.int32), segment.astype(np.int32), size, link.astype(np.int32), start, end)
    )


def relay() -> Schedule:
    """Rank 0 to rank 2 over a switch, three chunks in one message, and one back."""
    builder = ScheduleBuilder(load_topology("switch:3"), "all_reduce", "relay", chunks=4)
    builder.add(step=0, chunk=[0, 1, 2], src=0, dst=2, op=Op.REDUCE)
    builder.add(step=1, chunk=3, src=2, dst=0, op=Op.COPY)
    return builder.build()


RELAY = relay()
UP, DOWN = RELAY.route_of(0)
RUN = recorded(
    (3, 0, 50, RELAY.route_of(3)[0], 9_000_000, 9_500_000),
    (0, 0, 100, UP, 0, 1_500_000),
    (0, 0, 100, DOWN, 1_000_000, 2_500_000),
    (0, 1, 60, UP, 1_500_000, 2_000_000),
)


def spans_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def names_of(events: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}


def test_every_span_is_on_its_link_and_every_send_on_its_rank() -> None:
    events = list(trace_events(RELAY, RUN))
    processes, tracks = names_of(events, "process_name"), names_of(events, "thread_name")
    assert processes == {(1, 0): "links", (2, 0): "ranks"}
    placed = [(tracks[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]) for e in spans_of(events)]
    assert placed == [
        ("0->s0", "chunks 0..2", 0.0, 1.5),
        ("rank 0", "chunks 0..2", 0.0, 1.5),
        ("s0->2", "chunks 0..2", 1.0, 1.5),
        ("0->s0", "chunks 0..2", 1.5, 0.5),
        ("rank 0", "chunks 0..2", 1.5, 0.5),
        ("2->s0", "chunk 3", 9.0, 0.5),
        ("rank 2", "chunk 3", 9.0, 0.5),
    ]


def test_a_span_says_what_it_carries() -> None:
    first, *_, last = spans_of(list(trace_events(RELAY, RUN)))
    assert first["cat"] == "reduce"
    assert first["args"] == {
        "op": "reduce",
        "step": 0,
        "src": 0,
        "dst": 2,
        "first_chunk": 0,
        "last_chunk": 2,
        "message": 0,
        "segment": 0,
        "bytes": 100,
    }
    assert (last["args"]["message"], last["args"]["bytes"], last["cat"]) == (1, 50, "copy")


def test_a_row_inside_a_message_belongs_to_it() -> None:
    (span, *_) = spans_of(list(trace_events(RELAY, recorded((2, 1, 5, UP, 0, 1)))))
    assert (span["name"], span["args"]["message"]) == ("chunks 0..2", 0)


def test_spans_that_overlap_get_tracks_of_their_own() -> None:
    spans = [(0, k, 10, UP, 100 * k, 100 * k + 250) for k in range(6)]
    events = list(trace_events(RELAY, recorded(*spans)))
    tracks = names_of(events, "thread_name")
    ends: dict[tuple[int, int], float] = defaultdict(float)
    for event in spans_of(events):
        track = (event["pid"], event["tid"])
        assert event["ts"] >= ends[track] - 1e-9
        ends[track] = event["ts"] + event["dur"]
    assert sorted(tracks.values()) == ["0->s0"] * 3 + ["rank 0"] * 3


def test_tracks_are_sorted_by_link_and_rank() -> None:
    events = list(trace_events(RELAY, RUN))
    order = {
        (e["pid"], e["tid"]): e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"
    }
    named = names_of(events, "thread_name")
    assert {named[track]: index for track, index in order.items()} == {
        "0->s0": UP,
        "s0->2": DOWN,
        "2->s0": RELAY.route_of(3)[0],
        "rank 0": 0,
        "rank 2": 2,
    }


def test_the_file_is_a_chrome_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(RELAY, RUN, path)
    trace = json.loads(path.read_text())
    assert trace == {"displayTimeUnit": "ns", "traceEvents": list(trace_events(RELAY, RUN))}
    assert list(tmp_path.iterdir()) == [path]


def test_a_trace_goes_to_standard_output_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_trace(RELAY, RUN, "-")
    assert len(json.loads(capfdbinary.readouterr().out)["traceEvents"]) == len(list(trace_events(RELAY, RUN)))


def test_a_run_without_spans_gives_an_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(RELAY, recorded(), path)
    assert spans_of(json.loads(path.read_text())["traceEvents"]) == []


def test_long_timelines_are_handled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(trace_events(RELAY, RUN))
    monkeypatch.setattr("weft.export.simulation_trace._BLOCK", 1)
    assert list(trace_events(RELAY, RUN)) == whole


def test_a_run_that_was_not_recorded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="simulate with record=True"):
        write_trace(RELAY, Result(None), tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_more_spans_than_a_viewer_can_show_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", 6)
    with pytest.raises(LimitError, match=r"a trace of 7 spans is more than the 6 .* use larger segments"):
        write_trace(RELAY, RUN, tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sharing", ["queue", "fluid"])
def test_a_simulated_ring_gives_a_whole_trace(sharing: str) -> None:
    ring = ring_all_reduce(load_topology("ring:4"))
    result = simulate(ring, "64KiB", segment_bytes=4096, sharing=sharing, record=True)
    spans = spans_of(list(trace_events(ring, result)))
    sent = [span for span in spans if span["pid"] == 2]
    assert sum(span["args"]["bytes"] for span in sent) == 2 * 3 * 65536
    assert len(spans) == 2 * len(sent) == 2 * 24 * 4
    assert max(span["ts"] + span["dur"] for span in spans) <= result.time_ps / 1e6


@pytest.mark.parametrize("make", [lambda: ring_all_reduce(load_topology("ring:4")), relay])
def test_spans_are_counted_without_a_run(
    make: Callable[[], Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = make()
    run = simulate(schedule, "64KiB", segment_bytes=None, record=True)
    count = len(spans_of(list(trace_events(schedule, run))))
    once = np.ones(schedule.messages, np.int64)
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", count)
    check_trace(schedule, once)
    monkeypatch.setattr(limits, "MAX_TRACE_EVENTS", count - 1)
    with pytest.raises(LimitError, match=f"a trace of {count} spans"):
        check_trace(schedule, once)
