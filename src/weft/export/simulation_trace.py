"""A simulated run as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process has a track per link, named like ``5->9``; another has a track per rank, with what the rank sends,
for as long as it occupies the rank's own link. Flows that share a link overlap: they are on several tracks of
that link's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from weft import limits
from weft.errors import InputError
from weft.export.chrome_trace import Tracks, check_count, process, write_events
from weft.schedule.ir import Op
from weft.schedule.paths import message_hops

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.simulation import Timeline

_PS_PER_US: Final = 10**6
_LINKS: Final = 1
_RANKS: Final = 2
_COLUMNS: Final = ("row", "segment", "size_bytes", "link", "start_ps", "end_ps")
_SMALLER: Final = "use larger segments or a smaller cluster"
_BLOCK: Final = 1 << 14
"""Spans turned into Python objects at a time, so that a long timeline is never held twice."""


class Recorded(Protocol):
    """What a trace needs of a simulation's result."""

    @property
    def timeline(self) -> Timeline | None:
        """All spans, if they were recorded."""


def write_trace(schedule: Schedule, result: Recorded, path: str | Path) -> None:
    """Write the trace of a run; ``"-"`` is standard output.

    Raises
    ------
    InputError
        If the run was not recorded, or the file cannot be written.
    LimitError
        If there are more spans than a viewer can show.
    """
    write_events(trace_events(schedule, result), path)


def trace_events(schedule: Schedule, result: Recorded) -> Iterator[dict[str, Any]]:
    """Yield the events of a run in the Chrome trace format, in order of time.

    Parameters
    ----------
    schedule
        What ran.
    result
        Of ``weft.simulate(schedule, ..., record=True)``.

    Raises
    ------
    InputError
        If the run was not recorded.
    LimitError
        If there are more spans than a viewer can show.
    """
    spans = result.timeline
    if spans is None:
        raise InputError("the run has no timeline; simulate with record=True")
    # A route leaves its source once, so the span on a link of the source's own is the one the rank sends in.
    sends = schedule.topology.link_src[spans.link] == schedule.src[spans.row]
    check_count(len(spans.row) + int(sends.sum()), _SMALLER)
    return _events(schedule, spans, sends)


def check_trace(
    schedule: Schedule, segments: NDArray[np.int64], max_work: float | None = limits.MAX_WORK
) -> None:
    """Refuse a trace that is surely too large before its run is made.

    Parameters
    ----------
    schedule
        What is to run.
    segments
        At least how many segments each message is cut into.
    max_work
        Operations that finding the paths may take, by estimate; None for any number.

    Raises
    ------
    LimitError
        If there would be more spans than a viewer can show, or finding the paths would take too long.
    """
    hops = message_hops(schedule, max_work)
    # Each segment is a span on every link, and one more at the rank that sends it.
    check_count(int((segments * (hops + (hops > 0))).sum()), _SMALLER)


def _events(schedule: Schedule, spans: Timeline, sends: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    for pid, name in ((_LINKS, "links"), (_RANKS, "ranks")):
        yield from process(pid, name)
    tracks = Tracks()
    order = np.lexsort((spans.segment, spans.row, spans.link, spans.start_ps))
    columns = (*(getattr(spans, name) for name in _COLUMNS), sends)
    for first in range(0, len(order), _BLOCK):
        block = order[first : first + _BLOCK]
        rows = zip(*(column[block].tolist() for column in columns), strict=True)
        for row, segment, size, link, start, end, is_send in rows:
            event = _span(schedule, row, segment, size)
            event |= {"ts": start / _PS_PER_US, "dur": (end - start) / _PS_PER_US}
            name = schedule.topology.link_name(link)
            yield from tracks.place(event, _LINKS, link, name, start, end)
            if is_send:
                rank = int(schedule.src[row])
                yield from tracks.place(event, _RANKS, rank, f"rank {rank}", start, end)


def _span(schedule: Schedule, row: int, segment: int, size_bytes: int) -> dict[str, Any]:
    starts = schedule.message_starts
    message = int(np.searchsorted(starts, row, side="right")) - 1
    after = int(starts[message + 1]) if message + 1 < len(starts) else schedule.transfers
    first, last = int(schedule.chunk[starts[message]]), int(schedule.chunk[after - 1])
    step, op = int(schedule.step[row]), Op(int(schedule.op[row])).name.lower()
    return {
        "name": f"chunk {first}" if first == last else f"chunks {first}..{last}",
        "cat": op,
        "ph": "X",
        "args": {
            "op": op,
            "step": step,
            "src": int(schedule.src[row]),
            "dst": int(schedule.dst[row]),
            "first_chunk": first,
            "last_chunk": last,
            "message": message,
            "segment": segment,
            "bytes": size_bytes,
        },
    }
