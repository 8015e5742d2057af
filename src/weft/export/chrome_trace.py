"""Files in the Chrome trace format, for ui.perfetto.dev or chrome://tracing.

Viewers only nest the spans of a track and would misdraw spans that overlap, so these are put on further
tracks of the same name.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft import limits
from weft.errors import LimitError
from weft.files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def write_events(events: Iterable[dict[str, Any]], path: str | Path) -> None:
    """Write a trace; ``"-"`` is standard output.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    encoder = msgspec.json.Encoder()
    separator = b'{"displayTimeUnit":"ns","traceEvents":[\n'
    with ExitStack() as stack:
        stream = sys.stdout.buffer if path == "-" else stack.enter_context(replacing(Path(path)))
        for event in events:
            stream.write(separator)
            stream.write(encoder.encode(event))
            separator = b",\n"
        stream.write(b"\n]}\n")


def metadata(kind: str, pid: int, tid: int, args: dict[str, str | int]) -> dict[str, Any]:
    """An event that names or orders a process or a track."""
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def process(pid: int, name: str) -> Iterator[dict[str, Any]]:
    """Events that introduce a process; those of smaller numbers are shown first."""
    yield metadata("process_name", pid, 0, {"name": name})
    yield metadata("process_sort_index", pid, 0, {"sort_index": pid})


def check_count(spans: int, way_out: str) -> None:
    """Raise a `LimitError` for more spans than viewers show; `way_out` says what to do."""
    if spans > limits.MAX_TRACE_EVENTS:
        most = f"the {limits.MAX_TRACE_EVENTS:,} that viewers can show"
        raise LimitError(f"a trace of {spans:,} spans is more than {most}; {way_out}")


class Tracks:
    """Which track a span goes on: the first of its kind that is free by then."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self._count = 0

    def place(
        self, event: dict[str, Any], pid: int, index: int, name: str, start: float, end: float
    ) -> Iterator[dict[str, Any]]:
        """Yield the event on its track, and before it the name of a track that is new.

        Parameters
        ----------
        event
            All but the track; spans of one `pid` and `index` come in the order of their starts.
        pid, index
            Process, and which of its tracks; they are shown in the order of `index`.
        name
            Of the track.
        start, end
            Of the span, in any unit.
        """
        lanes = self._lanes.setdefault((pid, index), [])
        for lane, (tid, free_from) in enumerate(lanes):
            if free_from <= start:
                lanes[lane] = (tid, end)
                break
        else:
            self._count += 1
            tid = self._count
            lanes.append((tid, end))
            yield metadata("thread_name", pid, tid, {"name": name})
            yield metadata("thread_sort_index", pid, tid, {"sort_index": index})
        yield event | {"pid": pid, "tid": tid}
