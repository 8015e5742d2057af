"""A simulated training job as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each of the first ranks, with a track of what it computes, one of what it waits for and tracks
of its collectives; one process with a track for every link; one for other resources of these ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import InputError
from weft.export.chrome_trace import Tracks, check_count, process, write_events
from weft.training.task_graph import TaskKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.training.cluster import ClusterRun
    from weft.training.task_graph import Graph

MOST_RANKS: Final = 8
"""Ranks that have tracks of their own; the others do the same, or nearly."""

_PS_PER_US: Final = 10**6
_LINKS: Final = 1
_RESOURCES: Final = 2
_FIRST_RANK: Final = 3
_WAY_OUT: Final = "use fewer --iterations, a smaller cluster or larger chunks"


def write_training_trace(graph: Graph, run: ClusterRun, path: str | Path) -> None:
    """Write a trace; ``"-"`` is standard output.

    Parameters
    ----------
    graph
        What ran.
    run
        Of `Cluster.run` with ``record=True``.
    path
        Of the file.

    Raises
    ------
    InputError
        If nothing was recorded, or the file cannot be written.
    LimitError
        If viewers could not show it.
    """
    if run.flow.spans is None:
        raise InputError("nothing was recorded; run with record=True")
    ranks = min(MOST_RANKS, run.equipment.flow.topology.ranks)
    check_count(len(run.flow.spans.task) + ranks * len(graph.tasks), _WAY_OUT)
    write_events(_events(graph, run, ranks), path)


def _events(graph: Graph, run: ClusterRun, ranks: int) -> Iterator[dict[str, Any]]:
    tracks = Tracks()
    yield from process(_LINKS, "links")
    if len(run.equipment.flow.resources) > 1:
        yield from process(_RESOURCES, "endpoints")
    for rank in range(ranks):
        yield from process(_FIRST_RANK + rank, f"rank {rank}")
        yield from _rank_events(graph, run, rank, tracks)
    yield from _resource_events(run, ranks, tracks)


def _rank_events(graph: Graph, run: ClusterRun, rank: int, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """Yield what one rank computes, waits for and sends."""
    began, ended = run.began_ps[:, rank], run.ended_ps[:, rank]
    free = 0
    for number in np.argsort(began, kind="stable").tolist():
        task, start, end = graph.tasks[number], int(began[number]), int(ended[number])
        if task.kind is TaskKind.COMPUTE:
            if start > free:
                yield from _place(tracks, _FIRST_RANK + rank, 1, "waiting", "wait", free, start, {})
            free = max(free, end)
            facts = {"iteration": task.iteration, "layer": task.layer}
            name = f"{task.phase} {task.name}"
            yield from _place(tracks, _FIRST_RANK + rank, 0, "computing", name, start, end, facts)
        elif task.kind is TaskKind.COLLECTIVE and end > start:
            facts = {"iteration": task.iteration, "group": task.group, "bytes": task.size_bytes}
            name = f"{task.name} {task.group}" if task.group >= 0 else task.name
            yield from _place(tracks, _FIRST_RANK + rank, 2, "collectives", name, start, end, facts)


def _resource_events(run: ClusterRun, ranks: int, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """Yield what links carry, and what endpoints of the first ranks do."""
    spans, flow = run.flow.spans, run.equipment.flow
    assert spans is not None
    links = flow.topology.links
    for index in np.argsort(spans.start_ps, kind="stable").tolist():
        resource = int(spans.resource[index])
        start, end = int(spans.start_ps[index]), int(spans.end_ps[index])
        kind, rank = divmod(resource - links, flow.topology.ranks)
        if resource >= links and (kind == 0 or rank >= ranks):
            continue  # computing has its track above
        pid = _LINKS if resource < links else _RESOURCES
        facts = {"bytes": int(spans.size_bytes[index])}
        name = flow.names[int(spans.task[index])]
        yield from _place(tracks, pid, resource, flow.resource_name(resource), name, start, end, facts)


def _place(
    tracks: Tracks, pid: int, index: int, track: str, name: str, start: int, end: int, facts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    event = {
        "name": name,
        "ph": "X",
        "ts": start / _PS_PER_US,
        "dur": (end - start) / _PS_PER_US,
        "args": facts,
    }
    yield from tracks.place(event, pid, index, track, start, end)
