"""Keeps a job within the segments that one simulation may have, by larger segments and fewer iterations.

Large models on many ranks have thousands of collectives with a hundred thousand transfers each. Segments are
chosen for the speed of a single collective; where all of them together are too many for the engine, messages
are cut into fewer segments, or into none, and fewer iterations are simulated. The result says what was done.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import LimitError
from weft.schedule.paths import find_paths
from weft.training.cluster import cut
from weft.training.task_graph import TaskKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.schedule import Schedule
    from weft.training.cluster import Cluster
    from weft.training.schedules import Chooser
    from weft.training.task_graph import Graph

FEWEST_ITERATIONS: Final = 3
"""Two intervals between starts, of which the second has the collectives of an iteration before it."""

_AT_ENDPOINTS: Final = 3
"""What a segment passes at most at its endpoints: memory, and the bus of either."""

_FACTORS: Final = (1, 2, 4, 8, None)
"""How many times as large segments become; None stands for whole messages."""


@dataclass(frozen=True, slots=True)
class FittedCluster:
    """A cluster whose segments fit, the iterations to simulate (None: as the policy has it), and a remark."""

    cluster: Cluster
    iterations: int | None
    note: str


def count_segments(graph: Graph, cluster: Cluster) -> int:
    """Segments of all collectives of a graph: what the engine has, or a few more where it joins chunks."""
    tasks: Counter[tuple[str, int]] = Counter()
    for task in graph.tasks:
        if task.kind is TaskKind.COLLECTIVE:
            for size in cut(cluster.endpoint, task.collective, task.size_bytes, cluster.topology.ranks):
                tasks[task.collective, size] += 1
    return sum(
        count * _segments(*cluster.choose(collective, size), size)
        for (collective, size), count in tasks.items()
        if size
    )


def count_spans(graph: Graph, cluster: Cluster) -> int:
    """Spans that a recorded run may have at most: each segment on each link, and at both endpoints."""
    longest = 0
    for collective, size in {(task.collective, task.size_bytes) for task in graph.tasks if task.size_bytes}:
        paths = find_paths(cluster.choose(collective, size)[0])
        longest = max(longest, int(np.diff(paths.path_offsets).max(initial=0)))
    resources = 0 if cluster.endpoint.read_bandwidth is None else _AT_ENDPOINTS
    return count_segments(graph, cluster) * (longest + resources) + len(graph.tasks) * cluster.topology.ranks


def fits(graph: Graph, cluster: Cluster) -> bool:
    """Whether one simulation can have that many segments."""
    return count_segments(graph, cluster) <= limits.MAX_SEGMENTS


def _segments(schedule: Schedule, segment_bytes: int | None, size_bytes: int) -> int:
    sizes = schedule.chunk_bytes(size_bytes, 1)
    # A chunk of no bytes, as a short buffer has some, is no segment.
    pieces = np.minimum(sizes, 1) if segment_bytes is None else -(-sizes // segment_bytes)
    return int(pieces[schedule.chunk].sum())


def with_larger_segments(choose: Chooser, factor: int | None) -> Chooser:
    """Choose the same schedules, in segments that are so many times as large; None: in whole messages."""

    def choose_larger(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        schedule, segment_bytes = choose(collective, size_bytes)
        return schedule, None if segment_bytes is None or factor is None else segment_bytes * factor

    return choose_larger


def fit_segments(
    cluster: Cluster, build: Callable[[int | None], Graph], iterations: int | None
) -> FittedCluster:
    """Find segments and iterations of a job that fit `weft.limits.MAX_SEGMENTS`.

    Parameters
    ----------
    cluster
        With the segments that suit each collective by itself.
    build
        Makes the graph of so many iterations; None leaves the number to the policy.
    iterations
        How many were asked for; None if that is free.

    Raises
    ------
    LimitError
        If whole messages and few iterations are still too much.
    """
    graph = build(iterations)
    wished = len(graph.starts)
    numbers = [(iterations, graph)]
    if iterations is None and wished > FEWEST_ITERATIONS:
        numbers.append((FEWEST_ITERATIONS, build(FEWEST_ITERATIONS)))
    needed = 0
    for number, tried in numbers:
        for factor in _FACTORS:
            larger = replace(cluster, choose=with_larger_segments(cluster.choose, factor))
            needed = count_segments(tried, larger)
            if needed <= limits.MAX_SEGMENTS:
                note = _describe(factor, None if number == iterations else number)
                return FittedCluster(cluster if factor == 1 else larger, number, note)
    msg = f"{needed:,} segments are more than the {limits.MAX_SEGMENTS:,} of one simulation"
    raise LimitError(f"{msg}; use a larger --fusion, --algorithm ring, or fewer --iterations")


def _describe(factor: int | None, iterations: int | None) -> str:
    """Say what was changed; nothing where nothing was."""
    changes = []
    if factor is None:
        changes.append("messages are sent whole instead of in segments")
    elif factor > 1:
        changes.append(f"segments are {factor} times as large as the fastest")
    if iterations is not None:
        changes.append(f"{iterations} iterations are simulated")
    if not changes:
        return ""
    return f"{' and '.join(changes)}, to stay within {limits.MAX_SEGMENTS:,} segments"
