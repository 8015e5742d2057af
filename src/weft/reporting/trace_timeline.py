"""The section of a report that shows who does what when: spans of a Chrome trace, or of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from weft import limits
from weft.errors import FormatError
from weft.reporting.section_kinds import MOST_NAME, MOST_TITLE, cut, words_section

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TRACKS: Final = 40
MOST_SPANS: Final = 1_000
"""Tracks of a page, and spans of each; shorter ones that lie close together become one."""

_LINKS: Final = "links"
_Microseconds = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]


class _Event(msgspec.Struct, frozen=True, gc=False):
    """What a page needs of one event."""

    ph: str
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: _Microseconds = 0.0
    dur: _Microseconds = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Trace(msgspec.Struct, frozen=True):
    """A file of events."""

    traceEvents: list[_Event]


@dataclass(slots=True)
class _Track:
    process: str
    name: str
    order: tuple[float, float]
    spans: list[tuple[float, float, str]] = field(default_factory=list)


def is_trace(data: bytes) -> bool:
    """Whether a file begins as a Chrome trace does."""
    start = data[:4096].lstrip()
    return start.startswith(b"[") or (start.startswith(b"{") and b'"traceEvents"' in start)


def read_trace(data: bytes, source: str) -> dict[str, Any]:
    """Read a Chrome trace.

    Raises
    ------
    FormatError
        If it is not one, or has too many events.
    """
    try:
        if data.lstrip().startswith(b"["):
            events = msgspec.json.decode(data, type=list[_Event])
        else:
            events = msgspec.json.decode(data, type=_Trace).traceEvents
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(source, f"is not a Chrome trace: {error}") from error
    if len(events) > limits.MAX_TRACE_EVENTS:
        raise FormatError(source, f"has more than {limits.MAX_TRACE_EVENTS:,} events")
    return timeline_section("Timeline", _plain(events))


def _plain(events: list[_Event]) -> Iterable[dict[str, Any]]:
    begun: dict[tuple[int | str, int | str], list[_Event]] = {}
    for event in events:
        match event.ph:
            case "M":
                yield {**_fields(event), "args": _read_args(event.args)}
            case "X":
                yield _fields(event)
            case "B":
                begun.setdefault((event.pid, event.tid), []).append(event)
            case "E" if open_spans := begun.get((event.pid, event.tid)):
                start = open_spans.pop()
                yield {**_fields(start), "ph": "X", "dur": event.ts - start.ts}


def _read_args(args: msgspec.Raw) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(args)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _fields(event: _Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("ph", "name", "pid", "tid", "ts", "dur")}


def timeline_section(title: str, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Make the section from events in the Chrome trace format; times are microseconds."""
    tracks, left_out = _collect(events)
    if not tracks:
        return words_section(
            title, ["There are no spans: no event has a duration, or a beginning and an end."]
        )
    begin = min((span[0] for track in tracks for span in track.spans), default=0.0)
    end = max((span[0] + span[1] for track in tracks for span in track.spans), default=0.0)
    names: dict[str, int] = {}
    rows = []
    for track in tracks:
        spans = _merge(sorted(track.spans), (end - begin) / MOST_SPANS)
        rows.append(
            {
                "process": cut(track.process, MOST_NAME),
                "name": cut(track.name, MOST_NAME),
                "spans": [
                    [
                        round(start - begin, 3),
                        round(took, 3),
                        names.setdefault(cut(name, MOST_NAME), len(names)),
                    ]
                    for start, took, name in spans
                ],
            }
        )
    note = f"{left_out:,} further tracks are not shown." if left_out else ""
    return {
        "kind": "timeline",
        "title": cut(title, MOST_TITLE),
        "end_us": round(end - begin, 3),
        "tracks": rows,
        "names": list(names),
        "note": note,
    }


def _collect(events: Iterable[dict[str, Any]]) -> tuple[list[_Track], int]:
    """Tracks in the order of viewers, those of links last, and how many there are too many."""
    processes: dict[Any, str] = {}
    ranks: dict[Any, float] = {}
    threads: dict[tuple[Any, Any], str] = {}
    order: dict[tuple[Any, Any], float] = {}
    spans: dict[tuple[Any, Any], list[tuple[float, float, str]]] = {}
    for event in events:
        key = (event["pid"], event["tid"])
        if event["ph"] == "X":
            spans.setdefault(key, []).append((event["ts"], max(event["dur"], 0.0), event["name"]))
            continue
        name, index = event["args"].get("name"), event["args"].get("sort_index")
        match event["name"]:
            case "process_name":
                processes[key[0]] = str(name)
            case "thread_name":
                threads[key] = str(name)
            case "process_sort_index" if isinstance(index, int | float):
                ranks[key[0]] = index
            case "thread_sort_index" if isinstance(index, int | float):
                order[key] = index
    tracks = []
    for key, found in spans.items():
        process = processes.get(key[0], f"process {key[0]}")
        place = ranks.get(key[0], 1e9) + (1e12 if process == _LINKS else 0.0), order.get(key, 1e9)
        tracks.append(_Track(process, threads.get(key, f"track {key[1]}"), place, found))
    tracks.sort(key=lambda track: track.order)
    return tracks[:MOST_TRACKS], max(len(tracks) - MOST_TRACKS, 0)


def _merge(spans: list[tuple[float, float, str]], least: float) -> list[tuple[float, float, str]]:
    """Join spans that are shorter than a pixel with those beside them, if there are too many."""
    if len(spans) <= MOST_SPANS:
        return spans
    merged: list[tuple[float, float, str]] = []
    count = 1
    for start, took, name in spans:
        last = merged[-1] if merged else None
        if last is not None and took < least and last[1] < 2 * least and start - last[0] - last[1] < least:
            count += 1
            merged[-1] = (last[0], max(last[1], start + took - last[0]), f"{count:,} spans")
        else:
            count = 1
            merged.append((start, took, name))
    return merged[: 2 * MOST_SPANS]
