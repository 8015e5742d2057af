"""Chunks on their way: what crosses which drawn line when, in columns small enough for a page.

A run has up to millions of crossings. Of a long one a page shows what is under way at some moments, and the
slider goes from one to the next. Runs that are too long to record are shown step by step instead, from the
schedule alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import LimitError
from weft.schedule.paths import find_paths, locate_links, message_hops
from weft.simulation.segment_sizes import count_segments
from weft.simulation.simulator import run_once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.reporting.fabric_shape import FabricShape
    from weft.schedule import Schedule
    from weft.simulation import SimulationResult

MOST_CROSSINGS: Final = 20_000
"""Crossings of one run on a page: some 400 KB."""

_MOST_RECORDED: Final = 2_000_000
_WORK: Final = 6e9
_STEP: Final = 1000
_MOST_STARTS: Final = 2_000
_MOST_MOMENTS: Final = 243
"""A power of three: each third of the moments lies in the middle of three, so fewer are among more."""

_MOST_MESSAGES: Final = 1_000_000

Columns = dict[str, "NDArray[np.int64]"]


def find_motion(result: SimulationResult, shape: FabricShape) -> dict[str, Any] | None:
    """What moves in a run, ready for JSON; None where nothing of it can be drawn."""
    schedule = result.schedule
    drawn = _representatives(shape)
    columns, most = None, None
    try:
        if result.timeline is None and _is_short(result):
            args = (schedule, result.size_bytes, result.segment_bytes, result.sharing)
            result = run_once(*args, record=True, max_work=_WORK)
        if result.timeline is not None:
            columns, unit, end = _by_time(result, drawn), "ps", result.time_ps
    except LimitError:
        columns = None
    if columns is None:
        (columns, most), unit, end = _by_step(schedule, drawn), "steps", _STEP * schedule.steps
    starts = _first_starts(columns)
    columns, moments = _choose_moments(columns, int(end), most)
    if not len(columns["link"]):
        return None
    notes = ["Of links that are one line, the first is shown."] if shape.note else []
    if moments is not None:
        notes.append(f"The run is long: shown is all that is under way at {len(moments)} moments of it.")
    line = shape.line_of[columns["link"]]
    chunks, chunk = np.unique(columns["chunk"], return_inverse=True)
    return {
        "unit": unit,
        "end": int(end),
        "line": line.tolist(),
        "start": columns["start"].tolist(),
        "took": (columns["end"] - columns["start"]).tolist(),
        "chunk": chunk.tolist(),
        "chunks": chunks.tolist(),
        "step": columns["step"].tolist(),
        "step_starts": starts,
        "moments": moments,
        "note": " ".join(notes),
    }


def _is_short(result: SimulationResult) -> bool:
    """Whether the run can be recorded: crossings are segments times links."""
    schedule = result.schedule
    segments = count_segments(schedule, result.size_bytes, result.segment_bytes)
    return int((segments * message_hops(schedule, _WORK)).sum()) <= _MOST_RECORDED


def _representatives(shape: FabricShape) -> NDArray[np.bool_]:
    """Links whose crossings are shown: of several links that are one line, the first."""
    lines, first = np.unique(shape.line_of, return_index=True)
    shown = np.zeros(len(shape.line_of), np.bool_)
    shown[first[lines >= 0]] = True
    return shown


def _by_time(result: SimulationResult, drawn: NDArray[np.bool_]) -> Columns:
    spans = result.timeline
    assert spans is not None
    keep = drawn[spans.link]
    row = spans.row[keep]
    schedule = result.schedule
    return {
        "link": spans.link[keep].astype(np.int64),
        "start": spans.start_ps[keep],
        "end": spans.end_ps[keep],
        "chunk": schedule.chunk[row].astype(np.int64),
        "segment": spans.segment[keep].astype(np.int64),
        "step": schedule.step[row].astype(np.int64),
    }


def _by_step(schedule: Schedule, drawn: NDArray[np.bool_]) -> tuple[Columns, int | None]:
    """Every message of a schedule on the links of its way, which share the step in equal parts.

    Times are thousandths of a step. Of a long schedule, only the messages of steps at some moments,
    whose number is returned; None if all are there.
    """
    rows = np.asarray(schedule.message_starts, np.int64)
    count, whole, moments = 3 * _MOST_MOMENTS, rows, None
    while len(rows) > _MOST_MESSAGES and count > 1:
        count //= 3
        moments = _spread_moments(_STEP * schedule.steps, count)
        rows = whole[np.isin(schedule.step[whole], moments // _STEP)]
    rows = rows[:_MOST_MESSAGES]
    offsets, links = _find_ways(schedule, rows)
    hops = np.diff(offsets)
    message = np.repeat(np.arange(len(rows)), hops)
    hop = np.arange(len(links)) - offsets[:-1][message]
    step = schedule.step[rows][message].astype(np.int64)
    begin = _STEP * step + _STEP * hop // hops[message]
    end = _STEP * step + _STEP * (hop + 1) // hops[message]
    keep = drawn[links]
    found = {
        "link": links.astype(np.int64),
        "start": begin,
        "end": end,
        "chunk": schedule.chunk[rows][message].astype(np.int64),
        "segment": np.zeros(len(links), np.int64),
        "step": step,
    }
    return {name: column[keep] for name, column in found.items()}, None if moments is None else count


def _find_ways(schedule: Schedule, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Links of the ways of some transfers, one after the other, and where those of each begin."""
    paths = find_paths(schedule, _WORK)
    first, count = locate_links(schedule, paths, rows)
    offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    index = np.arange(int(offsets[-1])) + np.repeat(first - offsets[:-1], count)
    return offsets, paths.path_links[index]


def _choose_moments(columns: Columns, end: int, most: int | None) -> tuple[Columns, list[int] | None]:
    """Keep all crossings; of too many, those under way at some moments that are evenly apart."""
    order = np.argsort(columns["start"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    if most is None and len(columns["link"]) <= MOST_CROSSINGS:
        return columns, None
    count = most or _MOST_MOMENTS
    while True:
        moments = _spread_moments(end, count)
        # A crossing is under way at some moment if it is at the first one that is not before its start.
        first = np.searchsorted(moments, columns["start"])
        keep = (first < count) & (moments[np.minimum(first, count - 1)] < columns["end"])
        if int(keep.sum()) <= MOST_CROSSINGS or count == 1:
            break
        count //= 3
    keep &= np.cumsum(keep) <= MOST_CROSSINGS
    return {name: column[keep] for name, column in columns.items()}, moments.tolist()


def _spread_moments(end: int, count: int) -> NDArray[np.int64]:
    """Middles of the equal parts of a run."""
    return (2 * np.arange(count, dtype=np.int64) + 1) * end // (2 * count)


def _first_starts(columns: Columns) -> list[int]:
    """When the first crossing of each step begins; of many steps, of some."""
    order = np.lexsort((columns["start"], columns["step"]))
    _, first = np.unique(columns["step"][order], return_index=True)
    starts = columns["start"][order][first]
    stride = max(-(-len(starts) // _MOST_STARTS), 1)
    return sorted(set(starts[::stride].tolist()))
