"""Every algorithm on one topology: built, verified, timed, and set beside the physical limit.

A candidate is simulated whole and cut into segments of a few sizes, because no single size suits a ring of a
hundred steps and a tree of six; its best time counts. A candidate that does not apply is listed with its
reason, and one that the verifier rejects without a time: how fast a wrong schedule is does not matter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.algorithms import registry
from weft.algorithms.bounds import lower_bound
from weft.errors import InputError, LimitError, ScheduleError, UnsupportedError
from weft.planning.segments import parse_segment, simulate_best
from weft.schedule import COLLECTIVES
from weft.topology import load_topology
from weft.verification import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from weft.algorithms.bounds import Bound
    from weft.algorithms.registry import Algorithm
    from weft.errors import VerificationError
    from weft.schedule import Schedule
    from weft.simulation import SimulationResult
    from weft.topology import Topology

NEAR_ENOUGH: Final = 0.999
"""A candidate this near the bound is not cut further."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """What one algorithm does.

    Parameters
    ----------
    algorithm
        Its registry name.
    steps, transfers
        Size of the schedule, both halves counted.
    synthesis_seconds
        CPU seconds to build it.
    problem
        What the verifier found, or None. Where there is a problem, everything below is None.
    seconds, fraction_of_bound, algbw_GBps, busbw_GBps
        Simulated time at the best segment size, and what follows from it.
    segment_bytes
        The segment size that was best; None for whole messages.
    simulation_seconds
        CPU seconds of the one simulation that counts.
    bottleneck
        Number of the link that is busy longest, and the share of the time that it is.
    """

    algorithm: str
    steps: int
    transfers: int
    synthesis_seconds: float
    problem: VerificationError | None
    seconds: float | None = None
    segment_bytes: int | None = None
    fraction_of_bound: float | None = None
    algbw_GBps: float | None = None
    busbw_GBps: float | None = None
    simulation_seconds: float | None = None
    bottleneck: tuple[int, float] | None = None

    @property
    def verified(self) -> bool:
        """Whether the verifier accepts it."""
        return self.problem is None

    def to_dict(self) -> dict[str, Any]:
        """Fields as ``weft compare --json`` prints them."""
        return {
            "algorithm": self.algorithm,
            "seconds": self.seconds,
            "steps": self.steps,
            "transfers": self.transfers,
            "segment_bytes": self.segment_bytes,
            "verified": self.verified,
            "fraction_of_bound": self.fraction_of_bound,
            "algbw_GBps": self.algbw_GBps,
            "busbw_GBps": self.busbw_GBps,
            "synthesis_seconds": self.synthesis_seconds,
            "simulation_seconds": self.simulation_seconds,
        }


@dataclass(frozen=True, slots=True)
class SkippedAlgorithm:
    """An algorithm that does not apply here, and why."""

    algorithm: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All algorithms on one topology, fastest first, wrong ones last."""

    topology: Topology
    collective: str
    size_bytes: int
    sharing: str
    bound: Bound
    results: tuple[ComparisonRow, ...]
    skipped: tuple[SkippedAlgorithm, ...]

    @property
    def best(self) -> ComparisonRow | None:
        """The fastest correct one, or None when all are wrong."""
        return next((row for row in self.results if row.verified), None)

    @property
    def verified(self) -> bool:
        """Whether every candidate is correct."""
        return all(row.verified for row in self.results)

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft compare --json`` prints."""
        return {
            "topology": self.topology.name,
            "size_bytes": self.size_bytes,
            "bound_seconds": self.bound.seconds,
            "bound_kind": self.bound.kind,
            "skipped": [{"algorithm": s.algorithm, "reason": s.reason} for s in self.skipped],
            "results": [row.to_dict() for row in self.results],
            "collective": self.collective,
            "sharing": self.sharing,
            "bound_explanation": self.bound.explanation,
        }


def compare(
    topology: str | Path | Topology,
    size: str | int,
    collective: str = "all_reduce",
    algorithms: Sequence[str] | None = None,
    *,
    root: int = 0,
    sharing: str = "queue",
    segment: str | int | None = "auto",
    progress: Callable[[str, int, int], None] | None = None,
) -> Comparison:
    """Build, verify and time every algorithm of a collective on a topology.

    Parameters
    ----------
    topology
        Whatever `weft.load_topology` takes.
    size
        Bytes of the buffer, such as ``"64MiB"``; see `Schedule.chunk_bytes` for what it counts.
    collective
        One of `weft.schedule.COLLECTIVES`.
    algorithms
        Registry names; by default all that offer the collective.
    root
        For broadcast and reduce.
    sharing
        How links are shared, ``queue`` or ``fluid``.
    segment
        ``"auto"`` tries several segment sizes, ``"none"`` or None cuts nothing, a size cuts to that size.
    progress
        Called as ``progress(algorithm, done, total)`` before each candidate.

    Raises
    ------
    InputError
        If something is unknown, or nothing applies: then an `UnsupportedError` with the first reason.

    Examples
    --------
    >>> result = compare("ring:4@bw=1GB/s,lat=0s", "4MB", algorithms=["ring"])
    >>> result.best.seconds, result.bound.seconds <= result.best.seconds
    (0.006, True)
    """
    topology = load_topology(topology)
    size_bytes = units.parse_size(size)
    if not size_bytes:
        msg = f"size {size!r}: nothing to compare without data; give at least one byte"
        raise InputError(msg)
    cut = parse_segment(segment)
    if not 0 <= root < topology.ranks:
        msg = f"root {root}: {topology.name} has ranks 0..{topology.ranks - 1}"
        raise InputError(msg)
    chosen = _choose(collective, algorithms)
    bound = lower_bound(topology, collective, size_bytes, root)

    def run(schedule: Schedule) -> SimulationResult:
        enough = bound.seconds / NEAR_ENOUGH
        return simulate_best(schedule, size_bytes, segment=cut, sharing=sharing, good_enough_s=enough)

    rows: list[ComparisonRow] = []
    skipped: list[SkippedAlgorithm] = []
    refusals: list[InputError] = []
    for index, algorithm in enumerate(chosen):
        if progress is not None:
            progress(algorithm.name, index, len(chosen))
        try:
            began = time.process_time()
            schedule = algorithm.build(topology, collective, root)
            synthesis = time.process_time() - began
        except (UnsupportedError, LimitError) as error:
            reason = error.reason if isinstance(error, UnsupportedError) else str(error)
            skipped.append(SkippedAlgorithm(algorithm.name, reason))
            refusals.append(error)
            continue
        except ScheduleError as error:
            msg = f"{algorithm.name} made no schedule: {error}"
            raise ScheduleError(msg) from error
        except Exception as error:
            error.add_note(f"while {algorithm.name} built {collective} on {topology.name}")
            raise
        rows.append(_assess(algorithm.name, schedule, synthesis, run, bound))
    if not rows:
        raise refusals[0]
    rows.sort(key=lambda row: (row.seconds is None, row.seconds or 0.0, row.algorithm))
    return Comparison(topology, collective, size_bytes, sharing, bound, tuple(rows), tuple(skipped))


def _choose(collective: str, names: Sequence[str] | None) -> list[Algorithm]:
    if collective not in COLLECTIVES:
        msg = f"collective {collective!r} is unknown, expected one of {', '.join(COLLECTIVES)}"
        raise InputError(msg)
    if names:
        return [registry.find(name) for name in dict.fromkeys(names)]
    chosen = registry.for_collective(collective)
    if not chosen:
        msg = f"no algorithm offers {collective} yet"
        raise InputError(msg)
    return chosen


def _assess(
    name: str,
    schedule: Schedule,
    synthesis_seconds: float,
    run: Callable[[Schedule], SimulationResult],
    bound: Bound,
) -> ComparisonRow:
    row = ComparisonRow(
        algorithm=name,
        steps=schedule.steps,
        transfers=schedule.transfers,
        synthesis_seconds=synthesis_seconds,
        problem=inspect(schedule).problem,
    )
    if not row.verified:
        return row
    result = run(schedule)
    link = int(np.argmax(result.link_busy_ps))
    return replace(
        row,
        seconds=result.seconds,
        segment_bytes=result.segment_bytes,
        fraction_of_bound=bound.seconds / result.seconds,
        algbw_GBps=result.algbw_GBps,
        busbw_GBps=result.busbw_GBps,
        simulation_seconds=result.cpu_seconds,
        bottleneck=(link, float(result.link_busy_ps[link]) / result.time_ps),
    )
