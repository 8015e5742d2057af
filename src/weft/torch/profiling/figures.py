"""The figures of a profile: the parts of an iteration, the speed of each group, and stragglers."""

from __future__ import annotations

import socket
from bisect import bisect_left
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from weft.errors import InputError
from weft.torch.dear.bucket_channel import COMMUNICATION
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.torch.dear.bucket_channel import OperationSpan
    from weft.torch.profiling.recording import Recording

PARTS: Final = ("forward", "backward", "update", "wait", "other")
"""The parts of an iteration; the last is the rest, so that together they are all of it."""

_PASSES: Final = ("forward", "backward")


NOTICEABLE: Final = 0.05
"""A straggler waits less than the median rank, by at least this share of an iteration."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, and the tenth and ninetieth percentile."""

    median_s: float
    low_s: float
    high_s: float

    @classmethod
    def of(cls, seconds: Sequence[float] | NDArray[np.float64]) -> Spread:
        """Return the spread of one or more times."""
        low, middle, high = np.percentile(np.asarray(seconds, dtype=np.float64), (10, 50, 90))
        return cls(float(middle), float(low), float(high))


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The seconds of each collective of one fusion group."""

    number: int
    size_bytes: int
    parameters: int
    seconds: dict[str, Spread]

    def rate(self, kind: str) -> float:
        """Return the bytes of the buffer per second."""
        seconds = self.seconds[kind].median_s
        return self.size_bytes / seconds if seconds else 0.0


@dataclass(frozen=True)
class Figures:
    """The figures of a recording.

    Parameters
    ----------
    iterations
        The number of iterations.
    whole
        The seconds of an iteration, from the end of one step to the end of the next.
    parts
        The same of each of `PARTS`: ``forward`` and ``backward`` without what is waited for and updated in
        between; ``wait`` is time in which training stands still for communication.
    groups
        The figures of each fusion group.
    communication_s
        The seconds of communication per iteration.
    hidden
        The share of the communication that training does not wait for.
    """

    iterations: int
    whole: Spread
    parts: dict[str, Spread]
    groups: tuple[GroupFigures, ...]
    communication_s: float
    hidden: float

    @property
    def computing_s(self) -> float:
        """The median seconds of an iteration in which this rank computes."""
        return sum(self.parts[part].median_s for part in ("forward", "backward", "update"))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        fields = asdict(self)
        return {"iterations": fields.pop("iterations"), "iteration": fields.pop("whole"), **fields}


class RankFigures(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The medians of one rank's iterations, which it sends to the others."""

    rank: int
    host: str
    iteration_s: float
    computing_s: float
    other_s: float
    wait_s: float


def compute_figures(recording: Recording) -> Figures:
    """Compute the figures of a recording.

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
    first, last = recording.bounds[0], recording.bounds[-1]
    spans = [span for span in recording.spans if first < span.end <= last]
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


def _sums(recording: Recording, spans: Sequence[OperationSpan]) -> dict[str, NDArray[np.float64]]:
    """Return the seconds of each kind by iteration; waits and updates inside a pass count as such only."""
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
    """Return the number of the iteration that a time lies in."""
    return bisect_left(recording.bounds, end) - 1


def _groups(recording: Recording, spans: Sequence[OperationSpan]) -> tuple[GroupFigures, ...]:
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


def rank_figures(recording: Recording, figures: Figures) -> RankFigures:
    """Return the medians of this rank."""
    return RankFigures(
        rank=recording.rank,
        host=socket.gethostname(),
        iteration_s=figures.whole.median_s,
        computing_s=figures.computing_s,
        other_s=figures.parts["other"].median_s,
        wait_s=figures.parts["wait"].median_s,
    )


def stragglers(ranks: Sequence[RankFigures]) -> list[int]:
    """Return the ranks that wait noticeably less than the median rank: the others wait for them.

    Examples
    --------
    >>> usual = [RankFigures(rank, "a", 1.0, 0.6, 0.0, 0.4) for rank in range(3)]
    >>> stragglers([*usual, RankFigures(3, "b", 1.0, 0.6, 0.38, 0.02)])
    [3]
    """
    usual = median(one.wait_s for one in ranks)
    return [one.rank for one in ranks if one.wait_s < usual - NOTICEABLE * one.iteration_s]
