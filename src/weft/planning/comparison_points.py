"""Comparisons at many points: every combination of some networks and sizes, here or on an executor."""

from __future__ import annotations

from dataclasses import fields
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

import msgspec

from weft import limits, units
from weft.algorithms.registry import Refusal
from weft.algorithms.resolver import resolve_algorithms
from weft.bounds.collective_bound import Bound
from weft.errors import VerificationError
from weft.planning.budget import DEFAULT_SECONDS
from weft.planning.comparison import Comparison, ComparisonRow, compare
from weft.planning.plans import Plan
from weft.planning.point_text import (
    AlgorithmText,
    read_algorithm,
    read_as,
    read_network,
    write_algorithm,
    write_network,
)
from weft.sweeps import SweepTask, run_tasks
from weft.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from weft.algorithms.resolver import AlgorithmLike
    from weft.collective_names import Collective
    from weft.simulation.simulator import Sharing
    from weft.topology import Topology


class ComparisonTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One comparison to be made, as `compare` takes it; `algorithms` is None for all."""

    network: str
    size_bytes: int
    collective: str
    algorithms: list[AlgorithmText] | None
    root: int
    sharing: str
    segment_bytes: str | int | None
    time_limit: float | None


class ProblemText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the verifier has against a schedule: the fields of a `VerificationError`."""

    check: str
    problem: str
    transfer: int | None
    rank: int | None
    chunk: int | None


class RowText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a `ComparisonRow`."""

    algorithm: str
    steps: int
    transfers: int
    synthesis_seconds: float
    problem: ProblemText | None
    seconds: float | None
    segment_bytes: int | None
    fraction_of_bound: float | None
    algbw_GBps: float | None
    busbw_GBps: float | None
    simulation_seconds: float | None
    bottleneck: tuple[int, float] | None
    untried_segments: tuple[int, ...]
    label: str
    library: str | None


class ComparisonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comparison without what its task has already; `skipped` has names of algorithms and reasons."""

    bound: Bound
    rows: list[RowText]
    skipped: list[tuple[str, str]]


def compare_points(
    topologies: Sequence[str | Path | Topology],
    sizes: Sequence[str | int],
    collective: Collective = "all_reduce",
    algorithms: AlgorithmLike | Sequence[AlgorithmLike] | None = None,
    *,
    executor: Executor | None = None,
    root: int = 0,
    sharing: Sharing = "queue",
    segment_bytes: str | int | None = "auto",
    time_limit: float | None = DEFAULT_SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
    deadline_s: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Comparison]:
    """Compare algorithms on every topology at every size; sizes change fastest.

    Parameters
    ----------
    topologies, sizes
        What to combine.
    executor
        Any of `concurrent.futures`, to which every combination is one task; None makes one after the other in
        this process.
    collective, algorithms, root, sharing, segment_bytes
        As for `weft.compare`. With an executor, functions of one's own are refused, because its workers do
        not have them.
    time_limit
        Seconds of wall-clock time for each combination.
    progress, deadline_s, stopped
        As for `weft.sweeps.stream_tasks`.

    Raises
    ------
    WeftError
        If a combination fails; names it. All others are then ended.
    TimedOut
        If they are not done within `deadline_s`.

    Examples
    --------
    >>> found = compare_points(["ring:4", "torus:2x4"], ["1MiB", "64MiB"], algorithms=["ring", "multitree"])
    >>> [(one.topology.name, one.size_bytes >> 20, one.best.algorithm) for one in found]
    [('ring:4', 1, 'multitree'), ('ring:4', 64, 'multitree'), ('torus:2x4', 1, ...), ('torus:2x4', 64, ...)]
    """
    limits.check("points of a sweep", len(topologies) * len(sizes), limits.MAX_SWEEP)
    points = list(product([load_topology(one) for one in topologies], map(units.parse_size, sizes)))
    # Once for all points, because it may run a script.
    chosen = None if algorithms is None else resolve_algorithms(algorithms, collective)
    if executor is None:
        one = partial(compare, root=root, sharing=sharing, segment_bytes=segment_bytes, time_limit=time_limit)
        found = []
        for done, (topology, size) in enumerate(points):
            if progress is not None:
                progress(f"{done:,} of {len(points):,} points", done, len(points))
            found.append(one(topology, size, collective, chosen))
        return found
    named = None if chosen is None else [write_algorithm(line) for line in chosen]
    write = cache(write_network)
    tasks = [
        ComparisonTask(write(topology), size, collective, named, root, sharing, segment_bytes, time_limit)
        for topology, size in points
    ]
    labels = [f"{units.format_size(size)} on {topology.name}" for topology, size in points]
    sent = [
        SweepTask("compare_point", msgspec.json.encode(task).decode(), label)
        for task, label in zip(tasks, labels, strict=True)
    ]
    texts = run_tasks(sent, executor, progress, deadline_s=deadline_s, stopped=stopped)
    answers = zip(texts, tasks, points, strict=True)
    return [_read_comparison(text, task, topology) for text, task, (topology, _) in answers]


def compare_point(text: str) -> str:
    """Make the comparison of a `ComparisonTask`, in a worker, and give it as a `ComparisonText`."""
    task = read_as(text, ComparisonTask)
    network = read_network(task.network)
    if isinstance(network, Plan):
        network = network.topology
    chosen = None if task.algorithms is None else [read_algorithm(one) for one in task.algorithms]
    found = compare(
        network,
        task.size_bytes,
        task.collective,  # type: ignore[arg-type]  # compare checks it
        chosen,
        root=task.root,
        sharing=task.sharing,  # type: ignore[arg-type]
        segment_bytes=task.segment_bytes,
        time_limit=task.time_limit,
    )
    rows = [_write_row(row) for row in found.results]
    skipped = [(one.algorithm, one.reason) for one in found.skipped]
    return msgspec.json.encode(ComparisonText(found.bound, rows, skipped)).decode()


def _write_row(row: ComparisonRow) -> RowText:
    found, problem = {field.name: getattr(row, field.name) for field in fields(row)}, row.problem
    if problem is not None:
        found["problem"] = ProblemText(
            problem.check, problem.problem, problem.transfer, problem.rank, problem.chunk
        )
    return RowText(**found)


def _read_comparison(text: str, task: ComparisonTask, topology: Topology) -> Comparison:
    found = read_as(text, ComparisonText)
    rows = tuple(_read_row(row) for row in found.rows)
    skipped = tuple(Refusal(algorithm, reason) for algorithm, reason in found.skipped)
    return Comparison(topology, task.collective, task.size_bytes, task.sharing, found.bound, rows, skipped)


def _read_row(row: RowText) -> ComparisonRow:
    found, problem = msgspec.structs.asdict(row), row.problem
    if problem is not None:
        place = {"transfer": problem.transfer, "rank": problem.rank, "chunk": problem.chunk}
        found["problem"] = VerificationError(problem.check, problem.problem, **place)
    return ComparisonRow(**found)
