"""How long collectives take: a line per collective, fitted or from a formula, or the simulator's own times.

An iteration is modelled with any of them. None of them knows what else the network does meanwhile:
collectives of one job follow one another on one channel, and `weft.training.iteration` sees to that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from weft import limits
from weft.bounds.collective_bound import any_shard_half_seconds, condition_of, lower_bound
from weft.errors import InputError
from weft.simulation import simulate
from weft.topology import load_topology
from weft.training.schedules import by_algorithm

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from weft.simulation.simulator import Sharing
    from weft.topology import Topology
    from weft.training.schedules import Chooser

SMALLEST_BYTES: Final = 1 << 10
"""Where simulated costs begin; whatever is smaller takes as long."""

STEP: Final = 4
"""Factor between sizes that are simulated; between them time is close to a line."""

_ROUNDS: Final = 40
_TOO_GOOD: Final = 1e-3
"""Relative errors below this count as this, so that no single sample is followed blindly."""


class Costs(Protocol):
    """Seconds of each collective, over bytes of the whole buffer. Nothing to send costs nothing.

    Costs for a model whose layers exchange something also have an ``all_to_all``, over bytes that each rank
    sends, its own part included.
    """

    def reduce_scatter(self, size_bytes: int, /) -> float:
        """Seconds until every rank has the sums of its part."""

    def all_gather(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all parts."""

    def all_reduce(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all sums."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A line: what every call takes, plus what every byte takes.

    Examples
    --------
    >>> AlphaBeta(alpha_s=1e-3, beta_s_per_byte=1e-8)(100_000)
    0.002
    """

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        if not (0 <= self.alpha_s < math.inf and 0 <= self.beta_s_per_byte < math.inf):
            msg = f"{self.alpha_s} s and {self.beta_s_per_byte} s per byte: both are at least 0 and finite"
            raise InputError(msg)

    def __call__(self, size_bytes: int, /) -> float:
        """Seconds of one call; none if there is nothing to send."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes if size_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Linear:
    """A line for each collective; an all-to-all only where a model needs one."""

    reduce_scatter: AlphaBeta
    all_gather: AlphaBeta
    all_reduce: AlphaBeta
    all_to_all: AlphaBeta | None = None

    @classmethod
    def in_halves(cls, reduce_scatter: AlphaBeta, all_gather: AlphaBeta) -> Linear:
        """Where an all-reduce is exactly its two halves, one after the other."""
        whole = AlphaBeta(
            reduce_scatter.alpha_s + all_gather.alpha_s,
            reduce_scatter.beta_s_per_byte + all_gather.beta_s_per_byte,
        )
        return cls(reduce_scatter, all_gather, whole)

    @classmethod
    def ring(cls, workers: int, alpha_s: float, beta_s_per_byte: float) -> Linear:
        """The closed form of a ring: P-1 messages of a P-th of the buffer in either half.

        Parameters
        ----------
        workers
            How many, P.
        alpha_s, beta_s_per_byte
            Of one message between neighbours.

        Examples
        --------
        >>> round(Linear.ring(4, alpha_s=0.0, beta_s_per_byte=1e-9).all_reduce(4_000_000), 9)
        0.006
        """
        if workers < 1:
            raise InputError(f"{workers} workers: there is at least one")
        half = AlphaBeta((workers - 1) * alpha_s, (workers - 1) / workers * beta_s_per_byte)
        return cls.in_halves(half, half)


class _ByName(ABC):
    """Costs that ask one function for every collective."""

    def reduce_scatter(self, size_bytes: int, /) -> float:
        """Seconds until every rank has the sums of its part."""
        return self._seconds("reduce_scatter", size_bytes)

    def all_gather(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all parts."""
        return self._seconds("all_gather", size_bytes)

    def all_reduce(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all sums."""
        return self._seconds("all_reduce", size_bytes)

    def all_to_all(self, size_bytes: int, /) -> float:
        """Seconds until every rank has what all others sent to it."""
        return self._seconds("all_to_all", size_bytes)

    @abstractmethod
    def _seconds(self, collective: str, size_bytes: int) -> float:
        """Seconds of a collective."""


@dataclass(frozen=True)
class Bounded(_ByName):
    """What no schedule on a topology can beat: for lines that no simulated policy may cross.

    Reduce-scatters and all-gathers are halves of an all-reduce here, with shards of any sizes, because a
    policy may cut an all-reduce in two that gives ranks behind slow links less.

    Examples
    --------
    >>> Bounded(load_topology("ring:4@bw=1GB/s,lat=0s")).all_reduce(4_000_000)
    0.003
    """

    topology: Topology

    def _seconds(self, collective: str, size_bytes: int) -> float:
        if not size_bytes:
            return 0.0
        if collective in ("reduce_scatter", "all_gather"):
            return any_shard_half_seconds(self.topology, size_bytes)
        return lower_bound(self.topology, collective, size_bytes).seconds

    def condition(self, size_bytes: int) -> str:
        """What the bound of an all-reduce of so many bytes takes for granted, in words, or nothing.

        Examples
        --------
        >>> Bounded(load_topology("switch:4")).condition(4_000_000)
        'sums are made at ranks'
        """
        if not size_bytes:
            return ""
        kind = lower_bound(self.topology, "all_reduce", size_bytes).kind
        return condition_of(self.topology, "all_reduce", kind)


class Interpolated(_ByName):
    """Times at few sizes, a factor of `STEP` apart, with lines between these.

    A size is measured when it is first needed, one above and one below what is asked for, so that nothing is
    extrapolated; what is smaller than `smallest_bytes` takes as long as that.
    """

    def __init__(self, smallest_bytes: int = SMALLEST_BYTES) -> None:
        self._smallest_bytes = smallest_bytes
        self._at = cache(self.measure)

    @abstractmethod
    def measure(self, collective: str, size_bytes: int) -> float:
        """Seconds of a collective at one of the few sizes; called once for each."""

    def _seconds(self, collective: str, size_bytes: int) -> float:
        if not size_bytes:
            return 0.0
        limits.check("bytes of a collective", size_bytes, limits.MAX_SIZE_BYTES)
        low = self._smallest_bytes
        if size_bytes <= low:
            return self._at(collective, low)
        while low * STEP < size_bytes:
            low *= STEP
        high = low * STEP
        first, last = self._at(collective, low), self._at(collective, high)
        return first + (last - first) * (size_bytes - low) / (high - low)


class Simulated(Interpolated):
    """Times of the simulator for the schedules that would run, at few sizes, with lines between these.

    Parameters
    ----------
    choose
        Gives for ``(collective, size_bytes)`` the schedule, and the bytes of a segment or None for whole
        messages.
    sharing
        As in `weft.simulate`.

    Examples
    --------
    >>> round(Simulated.on("ring:4@bw=1GB/s,lat=0s", "ring").all_reduce(4_000_000), 9)
    0.006
    """

    def __init__(self, choose: Chooser, *, sharing: Sharing = "queue") -> None:
        super().__init__()
        self._choose, self._sharing = choose, sharing

    @classmethod
    def on(
        cls,
        topology: str | Path | Topology,
        algorithm: str = "direct",
        *,
        segment_bytes: int | None = None,
        sharing: Sharing = "queue",
    ) -> Simulated:
        """One algorithm's all-reduce on a topology, the two halves of just that, and a direct all-to-all."""
        choose = by_algorithm(load_topology(topology), algorithm, segment_bytes, halved=True)
        return cls(choose, sharing=sharing)

    def measure(self, collective: str, size_bytes: int) -> float:
        """Simulate the schedule that is chosen for this size."""
        schedule, segment_bytes = self._choose(collective, size_bytes)
        result = simulate(
            schedule, size_bytes, segment_bytes=segment_bytes, sharing=self._sharing, max_work=None
        )
        return result.seconds


def fit(samples: Iterable[tuple[int, float]]) -> AlphaBeta:
    """Fit a line of seconds over bytes that a few bad measurements cannot bend.

    Several times of one size count as their lower quartile, because what disturbs a collective, such as a
    rank that comes late, only ever makes it longer. Through these goes the line whose relative errors add up
    to least, so that small sizes count as much as large ones and one size that went wrong counts little;
    neither of its parts is negative.

    Parameters
    ----------
    samples
        Pairs of bytes and seconds.

    Raises
    ------
    InputError
        If they are not of at least two sizes, or not times.

    Examples
    --------
    >>> line = fit([(1000, 0.002), (1000, 0.002), (1000, 0.5), (3000, 0.004)])
    >>> round(line.alpha_s, 6), round(line.beta_s_per_byte, 9)
    (0.001, 1e-06)
    """
    by_size: defaultdict[int, list[float]] = defaultdict(list)
    for count, (size_bytes, seconds) in enumerate(samples, 1):
        limits.check("samples", count, limits.MAX_SAMPLES)
        if size_bytes < 1 or not 0 < seconds < math.inf:
            msg = f"{seconds} s for {size_bytes} bytes: expected a time above 0 of at least one byte"
            raise InputError(msg)
        by_size[size_bytes].append(seconds)
    if len(by_size) < 2:
        msg = f"a line needs times of at least two sizes, not of {len(by_size)}; measure another size"
        raise InputError(msg)
    sizes = np.array(sorted(by_size), dtype=np.float64)
    times = np.array([np.quantile(by_size[size], 0.25, method="lower") for size in sorted(by_size)])
    weights = np.ones(len(sizes))
    alpha = beta = 0.0
    for _ in range(_ROUNDS):
        alpha, beta = _weighted(sizes / times, 1 / times, weights)
        errors = np.abs((alpha + beta * sizes) / times - 1)
        weights = 1 / np.maximum(errors, _TOO_GOOD)
    return AlphaBeta(alpha, beta)


def _weighted(
    size: NDArray[np.float64], one: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, float]:
    """Least squares of ``alpha * one + beta * size = 1`` without negative parts."""
    one_one, one_size, size_size = (
        (weights * one * one).sum(),
        (weights * one * size).sum(),
        (weights * size * size).sum(),
    )
    one_sum, size_sum = (weights * one).sum(), (weights * size).sum()
    determinant = one_one * size_size - one_size * one_size
    alpha = (one_sum * size_size - size_sum * one_size) / determinant
    beta = (size_sum * one_one - one_sum * one_size) / determinant
    if alpha < 0:
        return 0.0, float(size_sum / size_size)
    if beta < 0:
        return float(one_sum / one_one), 0.0
    return float(alpha), float(beta)
