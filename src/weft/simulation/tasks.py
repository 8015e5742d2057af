"""What a workflow is made of: resources of ranks, collectives that pass them, and tasks of stages.

What each of them means in a run is written down in docs/workflow.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.schedule import Schedule

MOST_IN_RATIO: Final = (1 << 31) - 1


def check_whole(what: str, *values: object) -> None:
    """Raise an `InputError` unless these are whole numbers: half a picosecond would be cut off silently."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise InputError(f"{what}: {str(value)[:40]!r} is no whole number")


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that every rank has one of, and that serves one thing at a time.

    Parameters
    ----------
    name
        For people.
    bandwidth
        Bytes per second.
    latency_ps
        Until what it has served is through.
    """

    name: str
    bandwidth: int
    latency_ps: int = 0

    def __post_init__(self) -> None:
        limits.check_text("the name of a resource", self.name, InputError)
        check_whole(f"resource {self.name}", self.bandwidth, self.latency_ps)
        if self.bandwidth < 1 or self.latency_ps < 0:
            msg = f"resource {self.name}: {self.bandwidth} B/s and {self.latency_ps} ps"
            raise InputError(f"{msg}; a bandwidth is at least 1, a latency at least 0")
        limits.check(f"bandwidth of {self.name}", self.bandwidth, limits.MAX_TIME_PS)
        limits.check(f"latency of {self.name}", self.latency_ps, limits.MAX_TIME_PS)


@dataclass(frozen=True, slots=True)
class Passage:
    """A resource that every transfer passes at its sender or its receiver.

    Parameters
    ----------
    resource
        Its number in the workflow.
    copy, reduce
        Bytes that pass it for each byte sent, by what the receiver does with them; 0 if those do not pass it.
    """

    resource: int
    copy: Fraction | int = 1
    reduce: Fraction | int = 1

    def __post_init__(self) -> None:
        if not all(isinstance(ratio, Rational) for ratio in (self.copy, self.reduce)):
            msg = f"a passage of {self.copy!r} and {self.reduce!r} bytes a byte; give numbers or fractions"
            raise InputError(msg)
        if not (self.copy >= 0 and self.reduce >= 0):
            raise InputError(f"a passage of {self.copy} and {self.reduce} bytes a byte; both are at least 0")
        limits.check("a passage's ratio over a common denominator", max(self.ratios), MOST_IN_RATIO)

    @property
    def ratios(self) -> tuple[int, int, int]:
        """Numerator for copies, numerator for reductions, and the denominator of both."""
        copy, reduce = Fraction(self.copy), Fraction(self.reduce)
        common = math.lcm(copy.denominator, reduce.denominator)
        return int(copy * common), int(reduce * common), common


@dataclass(frozen=True, slots=True)
class Part:
    """A stage in which a rank carries out some steps of a collective; `pool` as for `LocalWork`."""

    pattern: int
    part: int = 0
    pool: int | None = None


@dataclass(frozen=True, slots=True)
class LocalWork:
    """A stage in which a rank works for itself.

    Parameters
    ----------
    resource
        Number of a resource that serves the amount as bytes; None for a pause of so many picoseconds.
    amount
        For every rank, or for each.
    pool
        A token of this pool is taken before, and held until the task's next stage that takes one begins, or
        until the task ends.
    """

    resource: int | None
    amount: int | NDArray[np.int64]
    pool: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """What a pattern was made from; the fields are those of `Workflow.pattern`."""

    schedule: Schedule
    size_bytes: int
    segment_bytes: int | None
    parts: tuple[int, ...]
    before: tuple[Passage, ...]
    after: tuple[Passage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What every rank does; the fields are those of `Workflow.task`."""

    name: str
    stages: tuple[Part | LocalWork, ...]
    after: tuple[int, ...]
    priority: int
    pool: int | None
