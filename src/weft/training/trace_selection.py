"""Which ranks, links and iterations a trace of a training job shows, so that viewers can open it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import InputError, list_some, quote

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.simulation.workflow import ResourceSpans
    from weft.topology import Topology
    from weft.training.cluster import ClusterRun
    from weft.training.task_graph import Graph

FIRST_RANKS: Final = 8
"""Ranks that a trace shows by default; the others do the same, or nearly."""


@dataclass(frozen=True, slots=True)
class TraceSelection:
    """What a trace shows; None leaves the choice to what viewers can open.

    Parameters
    ----------
    ranks
        Ranks that have tracks of their own, and whose endpoints are shown.
    links
        Numbers of the links that have tracks.
    iteration
        The only iteration that is shown, from 0 on.
    """

    ranks: tuple[int, ...] | None = None
    links: tuple[int, ...] | None = None
    iteration: int | None = None


def select_trace(
    topology: Topology,
    ranks: str | Iterable[int] | None = None,
    links: str | Iterable[str | int] | None = None,
    iteration: int | None = None,
) -> TraceSelection:
    """Check what a trace is to show, before anything is simulated.

    Parameters
    ----------
    topology
        Of the job.
    ranks
        Numbers, or text such as ``"0,1,8-15"``.
    links
        Names such as ``"0->1"``, or numbers; as text with commas between them.
    iteration
        Counted from 0.

    Raises
    ------
    InputError
        If there is no such rank or link, or none at all.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> select_trace(load_topology("ring:4"), "0,2-3", "0->1")
    TraceSelection(ranks=(0, 2, 3), links=(0,), iteration=None)
    """
    if iteration is not None and iteration < 0:
        raise InputError(f"iteration {iteration} of a trace: iterations are counted from 0")
    return TraceSelection(
        None if ranks is None else _find_ranks(topology, ranks),
        None if links is None else _find_links(topology, links),
        iteration,
    )


def _find_ranks(topology: Topology, given: str | Iterable[int]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for word in given.split(",") if isinstance(given, str) else given:
        for rank in _span(str(word), topology.ranks):
            found[rank] = None
    if not found:
        raise InputError("ranks of a trace: none are given; name some, such as 0,1 or 0-7")
    return tuple(found)


def _span(word: str, ranks: int) -> range:
    first, dash, last = word.strip().partition("-")
    ends = (first, last if dash else first)
    if not all(end.isascii() and end.isdigit() and len(end) < len(str(limits.MAX_RANKS)) + 1 for end in ends):
        raise InputError(f"ranks of a trace: {quote(word)} is neither a rank nor a range such as 0-7")
    low, high = map(int, ends)
    if low > high:
        problem = f"the range {quote(word)} is reversed; write {high}-{low}"
        raise InputError(f"ranks of a trace: {problem}")
    if high >= ranks:
        raise InputError(f"ranks of a trace: {quote(word)}; there are ranks 0 to {ranks - 1}")
    return range(low, high + 1)


def _find_links(topology: Topology, given: str | Iterable[str | int]) -> tuple[int, ...]:
    words = given.split(",") if isinstance(given, str) else [str(one) for one in given]
    by_name: dict[str, list[int]] = {}
    for link in range(topology.links):
        by_name.setdefault(topology.link_name(link), []).append(link)
        by_name.setdefault(str(link), [link])
    found: dict[int, None] = {}
    for word in (word.strip() for word in words):
        if word not in by_name:
            names = list_some(topology.link_name(link) for link in range(topology.links))
            raise InputError(f"links of a trace: there is no link {quote(word)}; there are {names}")
        found.update(dict.fromkeys(by_name[word]))
    if not found:
        raise InputError("links of a trace: none are given; name some, such as 0->1")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ShownPart:
    """What of a run a trace shows.

    `window_ps` is the time that it shows, `tasks` and `spans` are the numbers of what lies in there, and
    `left_out` says in words what was not asked to be left out.
    """

    ranks: tuple[int, ...]
    window_ps: tuple[int, int]
    tasks: NDArray[np.int64]
    spans: NDArray[np.int64]
    left_out: str


def find_shown(graph: Graph, run: ClusterRun, selection: TraceSelection) -> ShownPart:
    """Choose what a trace shows: what was selected, and of that no more than viewers can open.

    Where all of it would be too much, only the last full iteration is shown; then only the first ranks; then
    only the links that are busiest.
    """
    everything = run.equipment.flow.topology.ranks
    ranks = tuple(range(min(FIRST_RANKS, everything))) if selection.ranks is None else selection.ranks
    last = len(graph.starts) - 2
    left_out: list[str] = []
    if selection.iteration is not None and selection.iteration > last:
        left_out.append(f"iteration {selection.iteration}, which was not simulated, for iteration {last}")
        selection = replace(selection, iteration=last)
    part = _cut(graph, run, ranks, selection)
    if selection.iteration is None and _events(part) > limits.MAX_TRACE_EVENTS:
        part = _cut(graph, run, ranks, replace(selection, iteration=last))
        left_out.append(f"all iterations but number {last}")
    if len(part.tasks) * len(ranks) > limits.MAX_TRACE_EVENTS:
        ranks = ranks[: max(1, limits.MAX_TRACE_EVENTS // len(part.tasks))]
        part = replace(part, ranks=ranks)
        left_out.append(f"all ranks but {len(ranks):,}")
    if _events(part) > limits.MAX_TRACE_EVENTS:
        assert run.flow.spans is not None
        shown, links = _busiest(part, run.flow.spans)
        part = replace(part, spans=shown)
        left_out.append(f"all links and endpoints but the {links:,} busiest")
    return replace(part, left_out=", ".join(left_out))


def _events(part: ShownPart) -> int:
    return len(part.tasks) * len(part.ranks) + len(part.spans)


def _cut(graph: Graph, run: ClusterRun, ranks: tuple[int, ...], selection: TraceSelection) -> ShownPart:
    """The part of a run that lies in an iteration, on some ranks and links."""
    mine = list(ranks)
    window = 0, run.run_ps
    if selection.iteration is not None:
        starts = run.began_ps[graph.starts[selection.iteration : selection.iteration + 2]][:, mine]
        window = int(starts[0].min()), int(starts[1].max())
    inside = (run.began_ps[:, mine] < window[1]) & (run.ended_ps[:, mine] > window[0])
    tasks = np.flatnonzero(inside.any(axis=1))
    return ShownPart(ranks, window, tasks, _spans(run, ranks, selection.links, window), "")


def _spans(
    run: ClusterRun, ranks: tuple[int, ...], links: tuple[int, ...] | None, window: tuple[int, int]
) -> NDArray[np.int64]:
    spans, topology = run.flow.spans, run.equipment.flow.topology
    if spans is None:
        return np.zeros(0, np.int64)
    shown = np.zeros(topology.links + len(run.equipment.flow.resources) * topology.ranks, np.bool_)
    shown[: topology.links] = links is None
    shown[list(links or ())] = True
    for kind in range(1, len(run.equipment.flow.resources)):  # computing, the first, has tracks of its own
        shown[topology.links + kind * topology.ranks + np.array(ranks)] = True
    inside = (spans.start_ps < window[1]) & (spans.end_ps > window[0])
    return np.flatnonzero(inside & shown[spans.resource])


def _busiest(part: ShownPart, spans: ResourceSpans) -> tuple[NDArray[np.int64], int]:
    """Spans of the resources that are busy longest, as many resources as there is room for."""
    resource = spans.resource[part.spans]
    busy = np.bincount(resource, (spans.end_ps - spans.start_ps)[part.spans])
    order = np.argsort(-busy, kind="stable")
    counts = np.cumsum(np.bincount(resource)[order])
    room = limits.MAX_TRACE_EVENTS - len(part.tasks) * len(part.ranks)
    chosen = order[: int(np.searchsorted(counts, room, side="right"))]
    return part.spans[np.isin(resource, chosen)], len(chosen)
