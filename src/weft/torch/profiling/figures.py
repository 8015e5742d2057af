"""Numbers of a recording: what an iteration consists of, and how fast each group travels."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import InputError
from weft.torch.profiling.recording import COMMUNICATION
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.torch.profiling.recording import RecordedSpan, Recording

PARTS: Final = ("forward", "backward", "update", "wait", "other")
"""What an iteration is made of; together they are all of it, and the last is what is left."""

_PASSES: Final = ("forward", "backward")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, and the tenth and ninetieth percentile."""

    median_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, seconds: Sequence[float] | NDArray[np.float64]) -> Spread:
        """Spread of some times, at least one."""
        low, median, high = np.percentile(np.asarray(seconds, dtype=np.float64), (10, 50, 90))
        return cls(float(median), float(low), float(high))

    def to_dict(self) -> dict[str, float]:
        """Fields as JSON has them."""
        return {"median_s": self.median_s, "low_s": self.low_s, "high_s": self.high_s}


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """How one group travels: seconds of each collective that it went through."""

    number: int
    size_bytes: int
    parameters: int
    seconds: dict[str, Spread]

    def rate(self, kind: str) -> float:
        """Bytes of the buffer per second."""
        median = self.seconds[kind].median_s
        return self.size_bytes / median if median else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON has them."""
        times = {kind: spread.to_dict() for kind, spread in self.seconds.items()}
        about = {"number": self.number, "size_bytes": self.size_bytes, "parameters": self.parameters}
        return {**about, "seconds": times}


@dataclass(frozen=True)
class Figures:
    """Numbers of a recording.

    Parameters
    ----------
    iterations
        How many there are.
    whole
        Seconds of an iteration, from the end of one step to the end of the next.
    parts
        The same of each of `PARTS`: ``forward`` and ``backward`` without what is waited for and updated in
        between; ``wait`` is time in which training stands still for communication.
    groups
        How each travels.
    communication_s
        Seconds of communication per iteration.
    hidden
        Share of that which training does not wait for.
    """

    iterations: int
    whole: Spread
    parts: dict[str, Spread]
    groups: tuple[GroupFigures, ...]
    communication_s: float
    hidden: float

    @property
    def computing_s(self) -> float:
        """Median seconds of an iteration that this rank is busy itself."""
        return sum(self.parts[part].median_s for part in ("forward", "backward", "update"))

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON has them."""
        return {
            "iterations": self.iterations,
            "iteration": self.whole.to_dict(),
            "parts": {part: spread.to_dict() for part, spread in self.parts.items()},
            "groups": [group.to_dict() for group in self.groups],
            "communication_s": self.communication_s,
            "hidden": self.hidden,
        }


def reckon(recording: Recording) -> Figures:
    """Reckon the numbers of a recording.

    Raises
    ------
    InputError
        If no iteration is complete.
    """
    if not recording.iterations:
        msg = (
            f"{len(recording.bounds)} steps were recorded with this fusion; an iteration lasts from the end "
            "of one to the end of the next; profile more, or wait until optimizer.tuning is False"
        )
        raise InputError(msg)
    spans = _inside(recording)
    sums = _sums(recording, spans)
    sent, waited = float(sums.pop("communication").sum()), float(sums["wait"].sum())
    whole = np.diff(recording.bounds)
    sums["other"] = np.maximum(0.0, whole - sum(sums.values()))
    return Figures(
        iterations=recording.iterations,
        whole=Spread.of(whole),
        parts={part: Spread.of(sums[part]) for part in PARTS},
        groups=_groups(recording, spans),
        communication_s=sent / recording.iterations,
        hidden=max(0.0, 1 - waited / sent) if sent else 1.0,
    )


def _inside(recording: Recording) -> list[RecordedSpan]:
    """Spans that ended within complete iterations."""
    first, last = recording.bounds[0], recording.bounds[-1]
    return [span for span in recording.spans if first < span.end <= last]


def _sums(recording: Recording, spans: Sequence[RecordedSpan]) -> dict[str, NDArray[np.float64]]:
    """Seconds of each kind in each iteration; waits and updates inside a pass count as such only."""
    sums = {kind: np.zeros(recording.iterations) for kind in (*PARTS[:-1], "communication")}
    passes = sorted((span.start, span.end, span.kind) for span in spans if span.kind in _PASSES)
    starts = [start for start, _, _ in passes]
    for span in spans:
        seconds = span.end - span.start
        kind = "communication" if span.kind in COMMUNICATION else span.kind
        if kind in sums:
            sums[kind][_iteration(recording, span.end)] += seconds
        if kind in ("wait", "update") and (number := bisect_left(starts, span.end) - 1) >= 0:
            start, end, around = passes[number]
            if start <= span.start and span.end <= end:
                sums[around][_iteration(recording, end)] -= seconds
    return sums


def _iteration(recording: Recording, end: float) -> int:
    """Number of the iteration that a time lies in."""
    return bisect_left(recording.bounds, end) - 1


def _groups(recording: Recording, spans: Sequence[RecordedSpan]) -> tuple[GroupFigures, ...]:
    times: dict[tuple[int, str], list[float]] = {}
    for span in spans:
        if span.kind in COLLECTIVES:
            times.setdefault((span.group, span.kind), []).append(span.end - span.start)
    return tuple(
        GroupFigures(
            number,
            group.size_bytes,
            len(group.names),
            {kind: Spread.of(times[number, kind]) for kind in COLLECTIVES if (number, kind) in times},
        )
        for number, group in enumerate(recording.fusion.groups)
    )
