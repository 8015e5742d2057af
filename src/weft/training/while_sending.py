"""How long computing takes on a cluster whose endpoints take from it only while their rank sends.

The engine of the cluster gives every computation a fixed time, but here that time depends on what is under
way meanwhile. So a run is repeated: each pass stretches the computations by what the pass before had under
way beside them, until the times do not change any more. Causes come before effects, so each pass is right
for longer than the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from weft.training.task_graph import TaskKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.training.endpoint_cost import Slowdowns
    from weft.training.task_graph import Graph

Amounts: TypeAlias = "dict[int, NDArray[np.int64]]"
"""Picoseconds of each computation at each rank, by the number of its task."""

MOST_PASSES: Final = 40
SETTLED: Final = 1e-4
"""Passes end when no iteration's time changes by more than this share."""


def stretch(
    graph: Graph,
    began_ps: NDArray[np.int64],
    ended_ps: NDArray[np.int64],
    whole_ps: Amounts,
    slowdowns: Slowdowns,
) -> Amounts:
    """Picoseconds of each computation at each rank, from when collectives were under way at that rank.

    Parameters
    ----------
    graph
        What ran.
    began_ps, ended_ps
        When each of its tasks did, at each rank.
    whole_ps
        Picoseconds of each computation at each rank with nothing under way, by the number of the task.
    slowdowns
        Of the layers.
    """
    sending = [number for number, task in enumerate(graph.tasks) if task.kind is TaskKind.COLLECTIVE]
    found = {number: amounts.copy() for number, amounts in whole_ps.items()}
    for rank in range(began_ps.shape[1]):
        starts, ends = _merge(began_ps[sending, rank], ended_ps[sending, rank])
        for number, amounts in whole_ps.items():
            task = graph.tasks[number]
            factor = slowdowns.get((task.phase, task.layer), 1.0)
            began = int(began_ps[number, rank])
            found[number][rank] = _stretched(int(amounts[rank]), began, factor, starts, ends)
    return found


def _merge(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times in which at least one of these is under way, as disjoint spans in order."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], starts[1:] > ends[:-1]])
    return starts[first], ends[np.concatenate([first[1:], [True]])]


def _stretched(
    whole_ps: int, began_ps: int, factor: float, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> int:
    """Picoseconds of a computation that takes `factor` times as long within the spans."""
    now, left = float(began_ps), float(whole_ps)
    for span in range(int(np.searchsorted(ends, began_ps, side="right")), len(starts)):
        free = max(0.0, float(starts[span]) - now)
        if left <= free:
            break
        now, left = now + free, left - free
        slow = (float(ends[span]) - now) / factor
        if left <= slow:
            return int(np.ceil(now + left * factor)) - began_ps
        now, left = float(ends[span]), left - slow
    return int(np.ceil(now + left)) - began_ps
