"""Every algorithm on one topology: built, verified, timed, and set beside the physical limit.

A candidate is simulated whole and cut into segments of a few sizes, because no single size suits a ring of a
hundred steps and a tree of six; the largest segments that are about as fast as any count, as in a plan. The
schedules of Gloo and of MPI libraries are not cut, because these send the messages that the schedule has. A
candidate that does not apply, is too large or would take too long is listed with its reason, and one that the
verifier rejects without a time: how fast a wrong schedule is does not matter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import units
from weft.algorithms import registry
from weft.algorithms.registry import Refusal
from weft.algorithms.resolver import resolve_algorithms
from weft.bounds.collective_bound import condition_of, kind_text, lower_bound
from weft.errors import InputError, LimitError, check_choice
from weft.notebook_display import ShortRepr, html_card, record_frame, short_line, short_name
from weft.planning.budget import DEFAULT_SECONDS, Budget, expect_schedule
from weft.planning.library_rows import refuse_by_default
from weft.planning.nccl_estimate import NOT_SIMULATED, estimate_of_nccl
from weft.planning.refusals import refuse_as_not_offered, refuse_as_too_slow
from weft.planning.segment_shares import SEGMENT_TOLERANCE
from weft.schedule import COLLECTIVES
from weft.schedule.paths import find_paths
from weft.simulation.segment_sizes import AUTO, parse_segment
from weft.simulation.simulator import search_segments
from weft.topology import load_topology
from weft.verification import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from weft.algorithms.registry import Algorithm
    from weft.algorithms.resolver import AlgorithmLike
    from weft.bounds.collective_bound import Bound
    from weft.collective_names import Collective
    from weft.errors import VerificationError
    from weft.planning.nccl_estimate import NcclEstimate
    from weft.schedule import Schedule
    from weft.schedule.paths import Paths
    from weft.simulation.simulator import Sharing
    from weft.topology import Topology


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonRow(ShortRepr):
    """What one algorithm does.

    Parameters
    ----------
    algorithm
        Its name in the registry, or that of the user's own function or schedule.
    steps, transfers
        Size of the schedule, both halves counted.
    synthesis_seconds
        CPU seconds to build it.
    problem
        What the verifier found, or None. Where there is a problem, everything below is None.
    seconds, fraction_of_bound, algbw_GBps, busbw_GBps
        Simulated time with segments of `segment_bytes`, and what follows from it.
    segment_bytes
        The largest segment size about as fast as any (`SEGMENT_TOLERANCE`); None for whole messages.
    simulation_seconds
        CPU seconds of the one simulation that counts.
    bottleneck
        Number of the link that is busy longest, and the share of the time that it is.
    untried_segments
        Segment sizes in bytes that might have been faster and were left out, because they cut too finely or
        because the time was over.
    label
        Its name for people, such as ``"nccl ring (8 channels)"``.
    library
        The communication library whose schedule it is, such as ``"nccl"``; None for all others.
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
    untried_segments: tuple[int, ...] = ()
    label: str = ""
    library: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.algorithm)

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
            "untried_segment_bytes": list(self.untried_segments),
            "label": self.label,
            "library": self.library,
            "problem": None if self.problem is None else str(self.problem),
        }


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """All algorithms on one topology, fastest first, wrong ones last."""

    topology: Topology
    collective: str
    size_bytes: int
    sharing: str
    bound: Bound
    results: tuple[ComparisonRow, ...]
    skipped: tuple[Refusal, ...]

    @property
    def best(self) -> ComparisonRow | None:
        """The fastest correct one, or None when all are wrong."""
        return next((row for row in self.results if row.verified), None)

    @property
    def best_of_libraries(self) -> ComparisonRow | None:
        """The fastest correct schedule that a communication library would run, or None without any."""
        return next((row for row in self.results if row.verified and row.library is not None), None)

    @property
    def best_of_others(self) -> ComparisonRow | None:
        """The fastest correct schedule that is no library's, or None without any."""
        return next((row for row in self.results if row.verified and row.library is None), None)

    @property
    def gain_over_libraries(self) -> float | None:
        """How many times as fast the best schedule that is no library's is as the best that is one's."""
        theirs, ours = self.best_of_libraries, self.best_of_others
        if theirs is None or ours is None or not theirs.seconds or not ours.seconds:
            return None
        return theirs.seconds / ours.seconds

    @property
    def nccl_estimate(self) -> NcclEstimate | None:
        """What NCCL's own cost model expects, where it knows the boxes: no row, because nothing runs it."""
        return estimate_of_nccl(self.topology, self.size_bytes) if self.collective == "all_reduce" else None

    @property
    def verified(self) -> bool:
        """Whether every candidate is correct."""
        return all(row.verified for row in self.results)

    def __repr__(self) -> str:
        name = short_name(self.topology.name)
        what = f"{self.collective} of {units.format_size(self.size_bytes)} on {name}"
        best = self.best
        if best is None or best.seconds is None or best.fraction_of_bound is None:
            return f"<Comparison {what}: none of {len(self.results)} is correct>"
        good = f"{units.human_seconds(best.seconds)}, {100 * best.fraction_of_bound:.1f} % of the bound"
        first = f"{short_name(best.algorithm)} is the fastest of {len(self.results)}"
        return short_line(f"<Comparison {what}: {first}; {good}>")

    def _repr_html_(self) -> str:
        size = units.format_size(self.size_bytes)
        kind = kind_text(self.topology, self.collective, self.bound.kind)
        bound = f"{units.human_seconds(self.bound.seconds)} ({kind}): {self.bound.explanation}"
        facts = [("bound", bound), ("sharing", self.sharing)]
        if (estimate := self.nccl_estimate) is not None:
            facts.append(("estimate", f"{estimate.first} ({NOT_SIMULATED})"))
        if self.skipped:
            facts.append(("left out", f"{len(self.skipped):,} algorithms; .skipped has the reasons"))
        columns = ("algorithm", "time", "algbw", "busbw", "of bound", "steps", "transfers", "verified")
        rows = [
            [
                row.label,
                "-" if row.seconds is None else units.human_seconds(row.seconds),
                "-" if row.algbw_GBps is None else f"{row.algbw_GBps:.2f} GB/s",
                "-" if row.busbw_GBps is None else f"{row.busbw_GBps:.2f} GB/s",
                "-" if row.fraction_of_bound is None else f"{100 * row.fraction_of_bound:.1f} %",
                f"{row.steps:,}",
                f"{row.transfers:,}",
                "yes" if row.verified else "NO",
            ]
            for row in self.results
        ]
        title = f"{self.collective} of {size} on {self.topology.name}"
        return html_card(title, facts, columns=columns, rows=rows)

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``, with the fields of `ComparisonRow.to_dict`."""
        return record_frame("Comparison.to_pandas", [row.to_dict() for row in self.results])

    def to_dict(self) -> dict[str, Any]:
        """Make the document that ``weft compare --json`` prints."""
        return {
            "topology": self.topology.name,
            "size_bytes": self.size_bytes,
            "bound_seconds": self.bound.seconds,
            "bound_kind": self.bound.kind,
            "skipped": [refusal.to_dict() for refusal in self.skipped],
            "results": [row.to_dict() for row in self.results],
            "collective": self.collective,
            "sharing": self.sharing,
            "bound_explanation": self.bound.explanation,
            "bound_condition": condition_of(self.topology, self.collective, self.bound.kind),
            "best_of_libraries": None if self.best_of_libraries is None else self.best_of_libraries.label,
            "gain_over_libraries": self.gain_over_libraries,
            "nccl_estimate": None if self.nccl_estimate is None else self.nccl_estimate.to_dict(),
        }


def compare(
    topology: str | Path | Topology,
    size: str | int,
    collective: Collective = "all_reduce",
    algorithms: AlgorithmLike | Sequence[AlgorithmLike] | None = None,
    *,
    root: int = 0,
    sharing: Sharing = "queue",
    segment_bytes: str | int | None = "auto",
    time_limit: float | None = DEFAULT_SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
    watch: Callable[[Comparison], None] | None = None,
) -> Comparison:
    """Build, verify and time every algorithm of a collective on a topology, those of few transfers first.

    Parameters
    ----------
    topology, size
        Whatever `weft.load_topology` takes, and bytes of the buffer (`Schedule.chunk_bytes`) or ``"64MiB"``.
    collective, root
        One of `weft.schedule.COLLECTIVES`; the root counts for broadcast and reduce.
    algorithms
        One or several of: a name, a function that takes a topology and returns a schedule, a schedule, or a
        file of these, as `weft.algorithms.resolver.resolve_algorithm` reads them. ``"all"`` stands for all of
        Weft's that offer the collective, which is the default; those of Gloo and MPI libraries are then shown
        only where `weft.planning.library_rows` has them.
    sharing
        How links are shared, ``queue`` or ``fluid``.
    segment_bytes
        ``"auto"`` tries several segment sizes, ``"none"`` or None cuts nothing, a size cuts to that size.
    time_limit
        Seconds of wall-clock time that it should take; None is no limit. What would not fit is skipped with
        that reason, but the first algorithm that applies is always tried.
    progress, watch
        Called as ``progress(algorithm, done, total)`` before each candidate, and with the comparison of what
        was tried so far after it.

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
        raise InputError(f"size {size!r}: nothing to compare without data; give at least one byte")
    cut = parse_segment(segment_bytes)
    budget = Budget(time_limit)
    topology.check_root(root)
    check_choice("collective", collective, COLLECTIVES)
    chosen = resolve_algorithms(algorithms, collective)
    bound = lower_bound(topology, collective, size_bytes, root)
    refused = {} if algorithms else refuse_by_default(chosen, topology, collective)
    trial = _Trial(topology, collective, root, size_bytes, cut, sharing, bound, budget)
    rows, skipped = trial.run_all([line for line in chosen if line.name not in refused], progress, watch)
    skipped += refused.values()
    if not algorithms:
        others = [line.name for line in registry.ALGORITHMS.values() if line not in chosen]
        skipped += [refuse_as_not_offered(name, collective) for name in others]
    return trial.collect(rows, skipped)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What every candidate is put through."""

    topology: Topology
    collective: str
    root: int
    size_bytes: int
    segment: int | str | None
    sharing: str
    bound: Bound
    budget: Budget

    def collect(self, rows: list[ComparisonRow], skipped: list[Refusal]) -> Comparison:
        """Put rows, the fastest first, and refusals into a comparison."""
        rows.sort(
            key=lambda row: (row.seconds is None, row.seconds or 0.0, row.library is not None, row.algorithm)
        )
        where = (self.topology, self.collective, self.size_bytes, self.sharing, self.bound)
        return Comparison(*where, tuple(rows), tuple(skipped))

    def run_all(
        self,
        algorithms: list[Algorithm],
        progress: Callable[[str, int, int], None] | None,
        watch: Callable[[Comparison], None] | None,
    ) -> tuple[list[ComparisonRow], list[Refusal]]:
        """Try all, those of few transfers first.

        Raises
        ------
        InputError
            If nothing applies: the first refusal's error.
        """
        rows, skipped = list[ComparisonRow](), list[Refusal]()
        for index, algorithm in enumerate(sorted(algorithms, key=lambda line: line.cost)):
            if progress is not None:
                progress(algorithm.name, index, len(algorithms))
            found = self.run(algorithm, must=not rows)
            if isinstance(found, Refusal):
                skipped.append(found)
            else:
                rows.append(found)
            if watch is not None:
                watch(self.collect(rows, skipped))
        if not rows and skipped[0].error is not None:
            raise skipped[0].error
        return rows, skipped

    def run(self, algorithm: Algorithm, *, must: bool) -> ComparisonRow | Refusal:
        """Build one algorithm and time it; unless it `must` be tried, only where the time suffices."""
        budget = self.budget
        too_late = refuse_as_too_slow(algorithm.name, budget.seconds or 0)
        # Estimated from below: what a candidate really takes is known once it is built.
        if not must and not budget.allows_rows(min(algorithm.cost, 2.0) * self.topology.ranks**2):
            return too_late
        began = time.process_time()
        schedule = algorithm.try_build(
            self.topology, self.collective, self.root, expected_bytes=self.size_bytes
        )
        synthesis_seconds = time.process_time() - began
        if isinstance(schedule, Refusal):
            return schedule
        paths = find_paths(schedule)
        expected = expect_schedule(schedule, paths)
        if not must and not budget.allows(expected):
            return too_late
        try:
            return self.assess(algorithm, schedule, paths, synthesis_seconds, expected)
        except (LimitError, MemoryError) as error:
            return Refusal.of(algorithm.name, error)

    def assess(
        self,
        algorithm: Algorithm,
        schedule: Schedule,
        paths: Paths,
        synthesis_seconds: float,
        expected: float,
    ) -> ComparisonRow:
        """Verify a schedule and, if it is right, time it; `expected` is what that was estimated to take."""
        began = time.monotonic()
        row = ComparisonRow(
            algorithm=algorithm.name,
            steps=schedule.steps,
            transfers=schedule.transfers,
            synthesis_seconds=synthesis_seconds,
            problem=inspect(schedule, max_work=algorithm.max_work).problem,
            label=algorithm.label(schedule),
            library=algorithm.library or None,
        )
        verified_in = time.monotonic() - began
        if not row.verified:
            return row
        search = search_segments(
            schedule,
            self.size_bytes,
            segment=None if algorithm.yardstick and self.segment == AUTO else self.segment,
            sharing=self.sharing,
            # Nothing is faster than this by more than the tolerance.
            good_enough_s=SEGMENT_TOLERANCE * self.bound.seconds,
            tolerance=SEGMENT_TOLERANCE,
            time_left=lambda: self.budget.left,
            paths=paths,
        )
        self.budget.learn(expected, verified_in + search.first_seconds)
        result = search.result
        link = int(np.argmax(result.link_busy_ps))
        return replace(
            row,
            seconds=result.seconds,
            segment_bytes=result.segment_bytes,
            fraction_of_bound=self.bound.seconds / result.seconds,
            algbw_GBps=result.algbw_GBps,
            busbw_GBps=result.busbw_GBps,
            simulation_seconds=result.cpu_seconds,
            bottleneck=(link, float(result.link_busy_ps[link]) / result.time_ps),
            untried_segments=result.untried_segments,
        )
