"""Measure the jobs in turn, round after round, so that all of them meet the same machine.

The time of a job for one round is the mean over its iterations, of the rank that took longest. What is
reported is the median over rounds, and ratios are ratios of medians.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.bench.bound import MachineLimit
    from weft.bench.control_messages import Message
    from weft.bench.task import BenchTask, Place

_ROUND_SECONDS: Final = 0.05
_FEWEST: Final = 3
_MOST: Final = 1000
_WARMUP_SHARE: Final = 4
_MOST_WARMUPS: Final = 20
_STEADY: Final = 1.0
"""Largest spread of rounds, as a share of their median, whose median still stands for them."""


class MeasuredJob(Protocol):
    """A job that is measured: a `PeerJob` of the controller, or the one that this process is a rank of."""

    name: str
    versions: dict[str, str]

    def do(self, order: Message) -> list[Message]:
        """Give an order to all ranks, and return their answers by rank."""


@dataclass(frozen=True)
class BenchEffort:
    """How much is measured; None for iterations or warm-ups leaves it to what a round should take.

    Results are compared with what they should be before and after the rounds, unless `check` is False.
    """

    rounds: int
    iterations: int | None = None
    warmups: int | None = None
    check: bool = True


@dataclass
class Series:
    """The times of one job with one task in one place: seconds per operation, round by round.

    `wrong` counts elements that are not what they should be; None where results were not checked.
    """

    iterations: int
    warmups: int
    wrong: int | None = None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds of one operation."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float | None:
        """From the fastest round to the slowest, as a share of the median; None for one round."""
        if len(self.seconds) < 2:
            return None
        return (max(self.seconds) - min(self.seconds)) / self.median

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; CPU seconds are those of all ranks together."""
        return asdict(self) | {
            "median_seconds": self.median,
            "fastest_seconds": min(self.seconds),
            "slowest_seconds": max(self.seconds),
            "spread": self.spread,
            "median_cpu_seconds": statistics.median(self.cpu_seconds),
        }


@dataclass
class BenchRow:
    """One task, and the times of every job with it."""

    task: BenchTask
    limit: MachineLimit | None
    ran: dict[str, dict[str, str]] = field(default_factory=dict)
    series: dict[str, dict[Place, Series]] = field(default_factory=dict)

    def judged_place(self, own: str = "weft") -> Place:
        """The place whose times are compared with a bound and with peers: in place, where there is both."""
        return "in" if "in" in self.series[own] else "out"

    def ratio(self, peer: str, own: str = "weft") -> float:
        """How many times as long a peer takes; in place, where both can."""
        place = self.judged_place(own)
        return self.series[peer][place].median / self.series[own][place].median

    def is_steady(self, peer: str, own: str = "weft") -> bool:
        """Whether rounds differ little enough, on both sides, for the ratio to mean something.

        Of one round nobody knows it.
        """
        place = self.judged_place(own)
        spreads = [self.series[name][place].spread for name in (peer, own)]
        return all(spread is not None and spread <= _STEADY for spread in spreads)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values for JSON."""
        return {
            **msgspec.structs.asdict(self.task),
            "size_bytes": self.task.size_bytes,
            "count": self.task.count,
            "bound": self.limit and asdict(self.limit),
            "contestants": {
                name: {**self.ran[name], **{place: one.to_dict() for place, one in places.items()}}
                for name, places in self.series.items()
            },
            "ratios": {name: self.ratio(name) for name in self.series if name != "weft"},
            "unsteady": [name for name in self.series if name != "weft" and not self.is_steady(name)],
        }


def measure(
    jobs: Sequence[MeasuredJob],
    tasks: Sequence[BenchTask],
    effort: BenchEffort,
    places: Sequence[Place],
    limit: Callable[[BenchTask], MachineLimit | None],
) -> Iterator[BenchRow]:
    """Measure task after task.

    Parameters
    ----------
    jobs
        Jobs that have started; the first is Weft's.
    tasks
        What to do.
    effort
        How often.
    places
        In place, out of place or both; a task may not have both.
    limit
        What a task takes at least.

    Yields
    ------
    Row
        As soon as a task is done.
    """
    for task in tasks:
        wanted: list[Place] = [place for place in task.places if place in places]
        row = BenchRow(task, limit(task))
        for job in jobs:
            job.do({"do": "prepare", "task": msgspec.to_builtins(task), "places": wanted})
            row.series[job.name] = {}
            for place in wanted:
                wrong, row.ran[job.name] = _check(job, place, compare=effort.check)
                row.series[job.name][place] = _plan(job, place, effort, wrong if effort.check else None)
        for turn in range(effort.rounds):
            for index in range(len(jobs)):
                job = jobs[(index + turn) % len(jobs)]
                for place, series in row.series[job.name].items():
                    _time(job, place, series)
        for job in jobs:
            for place, series in row.series[job.name].items():
                if series.wrong is not None:
                    series.wrong += _check(job, place)[0]
        # A limit may be measured too, and the fastest measurement counts.
        again = limit(task)
        if again is not None and row.limit is not None and again.seconds < row.limit.seconds:
            row.limit = again
        yield row


def _check(job: MeasuredJob, place: Place, *, compare: bool = True) -> tuple[int, dict[str, str]]:
    answers = job.do({"do": "check", "place": place, "compare": compare})
    ran = {name: value for name, value in answers[0].items() if name != "wrong"}
    return sum(answer["wrong"] for answer in answers), ran


def _plan(job: MeasuredJob, place: Place, effort: BenchEffort, wrong: int | None) -> Series:
    """How often a job does it in a round: as often as asked, or for about `_ROUND_SECONDS`."""
    iterations, warmups = effort.iterations, effort.warmups
    if iterations is None:
        probe = Series(_FEWEST, 1)
        _time(job, place, probe)
        iterations = min(max(_FEWEST, math.ceil(_ROUND_SECONDS / probe.median)), _MOST)
    if warmups is None:
        warmups = min(max(1, iterations // _WARMUP_SHARE), _MOST_WARMUPS)
    return Series(iterations, warmups, wrong)


def _time(job: MeasuredJob, place: Place, series: Series) -> None:
    order = {"do": "time", "place": place, "warmups": series.warmups, "iterations": series.iterations}
    answers = job.do(order)
    series.seconds.append(max(answer["seconds"] for answer in answers))
    series.cpu_seconds.append(sum(answer["cpu_seconds"] for answer in answers))
