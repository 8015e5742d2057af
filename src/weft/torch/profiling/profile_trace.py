"""A profile as a Chrome trace: a process for each rank, and one for what the model of an iteration expects.

Ranks of one machine share a clock. Those of several are put side by side by the time of day, which is as
exact as their clocks agree.
"""

from __future__ import annotations

import socket
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.export.chrome_trace import Tracks, check_count, process
from weft.torch.dear.bucket_channel import COMMUNICATION
from weft.torch.profiling.expected_times import Prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.torch.profiling.recording import Recording

_US_PER_S: Final = 1e6
_TRACKS: Final = ("compute", "update", "step", "communication", "waiting")
_TRACK_OF: Final = {
    "forward": 0,
    "backward": 0,
    "update": 1,
    "step": 2,
    **dict.fromkeys(COMMUNICATION, 3),
    "wait": 4,
}


class RankSpans(msgspec.Struct, forbid_unknown_fields=True, array_like=True):
    """Spans of one rank: kind, group, and times of day."""

    rank: int
    host: str
    spans: list[tuple[str, int, float, float]]
    sizes: list[int]
    first_iteration: float


def rank_spans(recording: Recording) -> RankSpans:
    """What this rank tells of its spans."""
    offset = time.time() - time.perf_counter()
    first = recording.bounds[0] if recording.bounds else 0.0
    return RankSpans(
        rank=recording.rank,
        host=socket.gethostname(),
        spans=[(span.kind, span.group, span.start + offset, span.end + offset) for span in recording.spans],
        sizes=[group.size_bytes for group in recording.fusion.groups],
        first_iteration=first + offset,
    )


def events(ranks: Sequence[RankSpans], prediction: Prediction | str) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace; microseconds from the first span on.

    Raises
    ------
    LimitError
        If there are more spans than a viewer can show.
    """
    check_count(sum(len(one.spans) for one in ranks), "profile fewer steps")
    begin = min((start for one in ranks for _, _, start, _ in one.spans), default=0.0)
    measured = (_of_rank(one, begin) for one in ranks)
    if not isinstance(prediction, Prediction):
        return chain.from_iterable(measured)
    model = _of_model(prediction, ranks[0], begin, pid=1 + max(one.rank for one in ranks))
    return chain(chain.from_iterable(measured), model)


def _of_rank(one: RankSpans, begin: float) -> Iterator[dict[str, Any]]:
    yield from process(one.rank, f"rank {one.rank} ({one.host})")
    tracks = Tracks()
    for kind, group, start, end in sorted(one.spans, key=lambda span: span[2]):
        size = one.sizes[group] if kind in COMMUNICATION and group >= 0 else None
        yield from _span(tracks, one.rank, kind, group, start - begin, end - begin, size)


def _of_model(prediction: Prediction, one: RankSpans, begin: float, pid: int) -> Iterator[dict[str, Any]]:
    """One iteration, beside the first that was recorded."""
    yield from process(pid, "predicted")
    tracks = Tracks()
    shift = one.first_iteration - begin
    for kind, number, start, end in prediction.timeline.spans:
        yield from _span(tracks, pid, kind, number, start + shift, end + shift, None)


def _span(
    tracks: Tracks, pid: int, kind: str, number: int, start: float, end: float, size_bytes: int | None
) -> Iterator[dict[str, Any]]:
    args: dict[str, float] = {} if number < 0 else {"number": number}
    if size_bytes is not None:
        args |= {"bytes": size_bytes, "MB/s": round(size_bytes / 1e6 / max(1e-9, end - start), 1)}
    event = {
        "name": kind if number < 0 else f"{kind} {number}",
        "cat": kind,
        "ph": "X",
        "ts": start * _US_PER_S,
        "dur": (end - start) * _US_PER_S,
        "args": args,
    }
    track = _TRACK_OF[kind]
    yield from tracks.place(event, pid, track, _TRACKS[track], start, end)
