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

    from weft.torch.profiling.recording import Recording, Span

PARTS: Final = ("forward", "backward", "update", "wait", "other")
"""What an iteration is made of; together they are all of it."""


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
    bounds = np.array(recording.bounds)
    sums = {kind: np.zeros(recording.iterations) for kind in (*PARTS, "communication")}
    for span in _inside(recording):
        number = bisect_left(recording.bounds, span.end) - 1
        kind = "communication" if span.kind in COMMUNICATION else span.kind
        if kind in sums:
            sums[kind][number] += span.end - span.start
    _take_out_of_forward(recording, sums)
    sent, waited = float(sums.pop("communication").sum()), float(sums["wait"].sum())
    whole = np.diff(bounds)
    sums["other"] = np.maximum(0.0, whole - sum(sums[part] for part in PARTS))
    return Figures(
        iterations=recording.iterations,
        whole=Spread.of(whole),
        parts={part: Spread.of(sums[part]) for part in PARTS},
        groups=tuple(_group(recording, number) for number in range(len(recording.fusion.groups))),
        communication_s=sent / recording.iterations,
        hidden=max(0.0, 1 - waited / sent) if sent else 1.0,
    )


def _inside(recording: Recording) -> list[Span]:
    """Spans that ended within complete iterations."""
    first, last = recording.bounds[0], recording.bounds[-1]
    return [span for span in recording.spans if first < span.end <= last]


def _take_out_of_forward(recording: Recording, sums: dict[str, NDArray[np.float64]]) -> None:
    """Count waits and updates that happen inside a forward or backward pass as such only."""
    passes = sorted(
        (span.start, span.end, span.kind)
        for span in _inside(recording)
        if span.kind in ("forward", "backward")
    )
    starts = [start for start, _, _ in passes]
    for span in _inside(recording):
        if span.kind not in ("wait", "update"):
            continue
        number = bisect_left(starts, span.end) - 1
        if number >= 0 and passes[number][0] <= span.start and span.end <= passes[number][1]:
            _, end, kind = passes[number]
            sums[kind][bisect_left(recording.bounds, end) - 1] -= span.end - span.start


def _group(recording: Recording, number: int) -> GroupFigures:
    group = recording.fusion.groups[number]
    times: dict[str, list[float]] = {}
    for span in _inside(recording):
        if span.group == number and span.kind in COLLECTIVES:
            times.setdefault(span.kind, []).append(span.end - span.start)
    spreads: dict[str, Spread] = {kind: Spread.of(times[kind]) for kind in COLLECTIVES if kind in times}
    return GroupFigures(number, group.size_bytes, len(group.names), spreads)
