"""How long collectives take: a line per collective, fitted or from a formula, or the simulator's own times.

An iteration is modelled with any of them. None of them knows what else the network does meanwhile:
collectives of one job follow one another on one channel, and `weft.training.iteration` sees to that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from weft import limits
from weft.bounds.collective_bound import lower_bound
from weft.errors import InputError
from weft.simulation import simulate
from weft.topology import load_topology
from weft.training.schedules import by_algorithm

if TYPE_CHECKING:
    from pathlib import Path

    from weft.topology import Topology
    from weft.training.schedules import Chooser

SMALLEST_BYTES: Final = 1 << 10
"""Where simulated costs begin; whatever is smaller takes as long."""

STEP: Final = 4
"""Factor between sizes that are simulated; between them time is close to a line."""


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
            msg = f"{workers} workers: there is at least one"
            raise InputError(msg)
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

    Examples
    --------
    >>> Bounded(load_topology("ring:4@bw=1GB/s,lat=0s")).all_reduce(4_000_000)
    0.003
    """

    topology: Topology

    def _seconds(self, collective: str, size_bytes: int) -> float:
        return lower_bound(self.topology, collective, size_bytes).seconds if size_bytes else 0.0


class Simulated(_ByName):
    """Times of the simulator for the schedules that would run, at few sizes, with lines between these.

    Sizes are simulated when they are first needed, one above and one below what is asked for, so that
    nothing is extrapolated.

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

    def __init__(self, choose: Chooser, *, sharing: str = "queue") -> None:
        self._choose, self._sharing = choose, sharing
        self._known: dict[tuple[str, int], float] = {}

    @classmethod
    def on(
        cls,
        topology: str | Path | Topology,
        algorithm: str = "direct",
        *,
        segment_bytes: int | None = None,
        sharing: str = "queue",
    ) -> Simulated:
        """One algorithm's all-reduce on a topology, the two halves of just that, and a direct all-to-all."""
        choose = by_algorithm(load_topology(topology), algorithm, segment_bytes, halved=True)
        return cls(choose, sharing=sharing)

    def _seconds(self, collective: str, size_bytes: int) -> float:
        if not size_bytes:
            return 0.0
        limits.check("bytes of a collective", size_bytes, limits.MAX_SIZE_BYTES)
        low = SMALLEST_BYTES
        if size_bytes <= low:
            return self._simulate(collective, low)
        while low * STEP < size_bytes:
            low *= STEP
        high = low * STEP
        first, last = self._simulate(collective, low), self._simulate(collective, high)
        return first + (last - first) * (size_bytes - low) / (high - low)

    def _simulate(self, collective: str, size_bytes: int) -> float:
        key = collective, size_bytes
        if key not in self._known:
            schedule, segment_bytes = self._choose(collective, size_bytes)
            result = simulate(
                schedule, size_bytes, segment_bytes=segment_bytes, sharing=self._sharing, max_work=None
            )
            self._known[key] = result.seconds
        return self._known[key]
