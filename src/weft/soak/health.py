"""Growth of the rank processes in memory, shared memory, descriptors, threads, mappings.

Ranks are sampled whenever they have opened a new communicator, which is the same state each time. Growth is
the slope of a line through the second half of the samples of each process, times how long these reach. The
slope is one for all processes, but not the level: a rank that is killed and started again is a new process.
"""

from __future__ import annotations

import ctypes
import gc
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_FEWEST: Final = 6
"""Samples from which a slope is judged."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one process used at one time; sizes in KiB."""

    pid: int
    seconds: float
    memory: int
    shared_memory: int
    descriptors: int
    threads: int
    mappings: int


class ResourceGrowth(msgspec.Struct, frozen=True):
    """How one of these grew.

    Parameters
    ----------
    what
        Name of the field of `Sample`.
    level
        Mean of all samples.
    growth
        Over the second half of the life of a process, on average.
    bound
        More than this is a leak.
    samples
        How many were judged; too few are not.
    """

    what: str
    level: float
    growth: float
    bound: float
    samples: int

    def __str__(self) -> str:
        unit = " KiB" if self.what in ("memory", "shared_memory") else ""
        name = self.what.replace("_", " ")
        return f"{name} grew by {self.growth:,.0f}{unit}; {self.bound:,.0f}{unit} is allowed"

    @property
    def judged(self) -> bool:
        """Whether there were enough samples."""
        return self.samples >= _FEWEST

    @property
    def leaks(self) -> bool:
        """Whether it grew too much."""
        return self.judged and self.growth > self.bound


_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "memory": (32 << 10, 0.25),
    "shared_memory": (32 << 10, 0.25),
    "descriptors": (2, 0.0),
    "threads": (2, 0.0),
    "mappings": (40, 0.25),
}
"""Growth that is allowed: so much, or this share of the level if that is more."""


def take_sample(pid: int, seconds: float) -> Sample:
    """Sample this process."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free would else look like what is used
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)

    def kib(name: str) -> int:
        return int(status[name].split()[0])

    return Sample(
        pid,
        seconds,
        memory=kib("RssAnon"),
        shared_memory=kib("RssShmem"),
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threads=kib("Threads"),
        mappings=Path("/proc/self/maps").read_bytes().count(b"\n"),
    )


def judge_growth(samples: Iterable[Sample]) -> list[ResourceGrowth]:
    """Fit a line to each quantity."""
    processes: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        processes[sample.pid].append(sample)
    # At first modules are loaded and caches fill up, one after the other: that is the first half.
    series = [kept for one in processes.values() if len(kept := one[len(one) // 2 :]) > 1]
    return [_fit(what, series) for what in _BOUNDS]


def _fit(what: str, series: list[list[Sample]]) -> ResourceGrowth:
    covariance = variance = 0.0
    values: list[float] = []
    for one in series:
        times, found = [sample.seconds for sample in one], [getattr(sample, what) for sample in one]
        values += found
        middle, level = fmean(times), fmean(found)
        covariance += sum((t - middle) * (y - level) for t, y in zip(times, found, strict=True))
        variance += sum((t - middle) ** 2 for t in times)
    least, share = _BOUNDS[what]
    level = fmean(values) if values else 0.0
    span = fmean(one[-1].seconds - one[0].seconds for one in series) if series else 0.0
    growth = covariance / variance * span if variance else 0.0
    return ResourceGrowth(what, level, growth, max(least, share * level), len(values))
