"""A simulated training job as a Chrome trace, for ui.perfetto.dev or chrome://tracing.

One process for each chosen rank, with a track of what it computes, one of what it waits for and tracks
of its collectives; one process with a track for every chosen link; one for other resources of these ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.export.chrome_trace import Tracks, process, write_events
from weft.training.task_graph import TaskKind
from weft.training.trace_selection import TraceSelection, find_shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from weft.training.cluster import ClusterRun
    from weft.training.task_graph import Graph
    from weft.training.trace_selection import ShownPart

_PS_PER_US: Final = 10**6
_LINKS: Final = 1
_RESOURCES: Final = 2
_FIRST_RANK: Final = 3


def write_training_trace(
    graph: Graph, run: ClusterRun, path: str | Path, selection: TraceSelection | None = None
) -> str:
    """Write a trace; ``"-"`` is standard output.

    Parameters
    ----------
    graph
        What ran.
    run
        Of `Cluster.run`; with ``record=True`` the trace has links and endpoints, else only ranks.
    path
        Of the file.
    selection
        What to show; by default as much as viewers can open.

    Returns
    -------
    str
        What was left out because viewers could not open it; empty if nothing was.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    shown = find_shown(graph, run, selection or TraceSelection())
    write_events(_events(graph, run, shown), path)
    return shown.left_out


def _events(graph: Graph, run: ClusterRun, shown: ShownPart) -> Iterator[dict[str, Any]]:
    tracks = Tracks()
    if run.flow.spans is not None:
        yield from process(_LINKS, "links")
        if len(run.equipment.flow.resources) > 1:
            yield from process(_RESOURCES, "endpoints")
    for rank in shown.ranks:
        yield from process(_FIRST_RANK + rank, f"rank {rank}")
        yield from rank_events(graph, run, rank, shown, tracks)
    yield from _resource_events(run, shown, tracks)


def rank_events(
    graph: Graph, run: ClusterRun, rank: int, shown: ShownPart, tracks: Tracks
) -> Iterator[dict[str, Any]]:
    """Yield what one rank computes, waits for and sends."""
    began, ended = run.began_ps[shown.tasks, rank], run.ended_ps[shown.tasks, rank]
    free = shown.window_ps[0]
    for place in np.argsort(began, kind="stable").tolist():
        task, start, end = graph.tasks[shown.tasks[place]], int(began[place]), int(ended[place])
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
    end = shown.window_ps[1]
    if free < end < run.run_ps:  # what ends this wait belongs to the next iteration, which is not shown
        yield from _place(tracks, _FIRST_RANK + rank, 1, "waiting", "wait", free, end, {})


def _resource_events(run: ClusterRun, shown: ShownPart, tracks: Tracks) -> Iterator[dict[str, Any]]:
    """Yield what links carry, and what endpoints of the chosen ranks do."""
    spans, flow = run.flow.spans, run.equipment.flow
    if spans is None:
        return
    for index in shown.spans[np.argsort(spans.start_ps[shown.spans], kind="stable")].tolist():
        resource = int(spans.resource[index])
        start, end = int(spans.start_ps[index]), int(spans.end_ps[index])
        pid = _LINKS if resource < flow.topology.links else _RESOURCES
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
