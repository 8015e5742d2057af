"""Runs a graph of tasks on one computing unit and one channel, with the times that costs give.

Fast and exact, and blind to what happens inside the network: a collective takes as long as `Costs` says,
whatever else happens meanwhile. The searches for a fusion and the checks against closed forms use this.

The rules: the computing unit does one task at a time, the channel one collective at a time, and neither ever
breaks one off. Among those that wait, the one of the smallest priority goes next; then the one that was ready
first; then the one that comes first in the graph.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.errors import InputError
from weft.training.iteration import IterationTimeline, TimelineSpan
from weft.training.steady_state import find_period
from weft.training.task_graph import TaskKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.training.costs import Costs
    from weft.training.endpoint_cost import Slowdowns
    from weft.training.task_graph import Graph, RankTask

MOST_CHANNELS: Final = 64


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """When each task began and ended, by its number."""

    began_s: tuple[float, ...]
    ended_s: tuple[float, ...]
    iteration_s: tuple[float, ...]
    """From the start of each iteration to that of the next."""

    end_s: float
    """When all that the end of the last iteration waits for was done."""


def run(
    graph: Graph,
    costs: Costs,
    overhead_s: float = 0.0,
    channels: int = 1,
    slowdowns: Slowdowns | None = None,
) -> IterationTimeline:
    """Run a graph and give an iteration in its steady state.

    Parameters
    ----------
    graph
        Of at least two iterations; more where a policy lets one iteration reach into the next, until times
        repeat.
    costs
        Of the collectives; with an `all_to_all` if the graph has any.
    overhead_s
        Seconds that each collective takes in addition.
    channels
        How many collectives may be under way at a time without disturbing each other.
    slowdowns
        Of the layers while a collective is under way; none by default.

    Returns
    -------
    IterationTimeline
        Its seconds, and those in which nothing computes, are means over the period with which iterations
        repeat, as for a cluster (`weft.training.steady_state`). The spans are those of the last full
        iteration and count from its start: what it computes, what it waits for, and the collectives that
        begin in it.

    Raises
    ------
    InputError
        If there are not two iterations, or the costs lack a collective.

    Examples
    --------
    >>> from weft.training import Layer, Linear, policies
    >>> model = [Layer("a", 1000, 1.0, 2.0), Layer("b", 1000, 1.0, 2.0)]
    >>> graph = policies.find("wfbp").build(model)
    >>> run(graph, Linear.ring(2, alpha_s=0.0, beta_s_per_byte=0.001)).seconds
    7.0
    """
    done = trace(graph, costs, overhead_s, channels, slowdowns)
    last = last_iteration(graph, done)
    starts = np.array([done.began_s[number] for number in graph.starts])
    count = find_period(starts)
    if count == 1:
        return last
    full = len(graph.starts) - 1
    exposed = [last_iteration(graph, done, number).exposed_s for number in range(full - count, full)]
    seconds = float(starts[-1] - starts[-1 - count]) / count
    return replace(last, seconds=seconds, exposed_s=math.fsum(exposed) / count)


def trace(
    graph: Graph,
    costs: Costs,
    overhead_s: float = 0.0,
    channels: int = 1,
    slowdowns: Slowdowns | None = None,
) -> TaskTimes:
    """Run a graph and give when everything happened; parameters as for `run`."""
    if len(graph.starts) < 2:
        raise InputError(f"a graph of {len(graph.starts)} iterations has no steady state; build at least 2")
    if not 1 <= channels <= MOST_CHANNELS:
        raise InputError(f"{channels} channels: expected 1 to {MOST_CHANNELS}")
    began, ended = _Machine(graph, _prices(costs), overhead_s, channels, slowdowns or {}).run()
    starts = [began[number] for number in graph.starts]
    return TaskTimes(
        tuple(began),
        tuple(ended),
        tuple(after - before for before, after in pairwise(starts)),
        max((ended[number] for number in graph.end()), default=max(ended)),
    )


class _Machine:
    """Everything that is under way or waits."""

    def __init__(
        self,
        graph: Graph,
        price: Callable[[str, int], float],
        overhead_s: float,
        channels: int,
        slowdowns: Slowdowns,
    ) -> None:
        self.tasks = graph.tasks
        self._price, self._overhead_s, self._channels = price, overhead_s, channels
        self._slowdowns = slowdowns
        self._missing = [len(task.after) for task in self.tasks]
        self._followers: list[list[int]] = [[] for _ in self.tasks]
        for number, task in enumerate(self.tasks):
            for before in task.after:
                self._followers[before].append(number)
        self._free = {TaskKind.COMPUTE: 1, TaskKind.COLLECTIVE: channels}
        self._waiting: dict[TaskKind, list[tuple[int, float, int]]] = {kind: [] for kind in self._free}
        self._under_way: list[tuple[float, int]] = []
        self._computing: _Progress | None = None
        self.began = [0.0] * len(self.tasks)
        self.ended = [0.0] * len(self.tasks)

    def run(self) -> tuple[list[float], list[float]]:
        for number, missing in enumerate(self._missing):
            if not missing:
                self._ready(number, 0.0)
        self._dispatch(0.0)
        self._change_pace(0.0)
        while self._under_way:
            now = self._under_way[0][0]
            if self._is_stale(*self._under_way[0]):
                heapq.heappop(self._under_way)
                continue
            # All that ends now ends before anything begins, so that priorities see everything that is ready.
            while self._under_way and self._under_way[0][0] == now:
                ended, number = heapq.heappop(self._under_way)
                if not self._is_stale(ended, number):
                    self._end(number, now)
            self._dispatch(now)
            self._change_pace(now)
        return self.began, self.ended

    def _ready(self, number: int, now: float) -> None:
        task = self.tasks[number]
        if task.kind is TaskKind.DELAY:
            self._begin(number, now, task.seconds)
        else:
            heapq.heappush(self._waiting[task.kind], (task.priority, now, number))

    def _begin(self, number: int, now: float, seconds: float) -> None:
        self.began[number] = now
        heapq.heappush(self._under_way, (now + seconds, number))

    def _is_stale(self, end: float, number: int) -> bool:
        """Whether this end was put off or brought forward when the pace of computing changed."""
        progress = self._computing
        return self.tasks[number].kind is TaskKind.COMPUTE and (
            progress is None or (progress.number, progress.end) != (number, end)
        )

    def _change_pace(self, now: float) -> None:
        """Compute on at the pace of this moment, which depends on whether anything is under way."""
        progress = self._computing
        if progress is None:
            return
        pace = self._pace(progress.number)
        if pace != progress.pace:
            left = max(0.0, progress.end - now) * pace / progress.pace
            self._computing = _Progress(progress.number, pace, now + left)
            heapq.heappush(self._under_way, (now + left, progress.number))

    def _pace(self, number: int) -> float:
        """How many times as long this computation takes now as with nothing under way."""
        if self._free[TaskKind.COLLECTIVE] == self._channels:
            return 1.0
        task = self.tasks[number]
        return self._slowdowns.get((task.phase, task.layer), 1.0)

    def _end(self, number: int, now: float) -> None:
        self.ended[number] = now
        kind = self.tasks[number].kind
        if kind is TaskKind.COMPUTE:
            self._computing = None
        if kind is not TaskKind.DELAY:
            self._free[kind] += 1
        for follower in self._followers[number]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._ready(follower, now)

    def _dispatch(self, now: float) -> None:
        for kind, waiting in self._waiting.items():
            while waiting and self._free[kind]:
                self._free[kind] -= 1
                number = heapq.heappop(waiting)[2]
                seconds = self._seconds(self.tasks[number], number)
                self._begin(number, now, seconds)
                if kind is TaskKind.COMPUTE:
                    self._computing = _Progress(number, self._pace(number), now + seconds)

    def _seconds(self, task: RankTask, number: int) -> float:
        if task.kind is TaskKind.COMPUTE:
            return task.seconds * self._pace(number)
        return self._price(task.collective, task.size_bytes) + self._overhead_s


class _Progress(NamedTuple):
    """The computation under way: its number, its pace, and when it ends at that pace."""

    number: int
    pace: float
    end: float


def _prices(costs: Costs) -> Callable[[str, int], float]:
    """Look up what a collective costs, once for each size: simulated costs take time to give."""

    @cache
    def price(collective: str, size_bytes: int) -> float:
        cost: Callable[[int], float] | None = getattr(costs, collective, None)
        if cost is None:
            msg = f"these costs have no {collective}, which the model needs; give costs that have one"
            raise InputError(msg)
        return cost(size_bytes)

    return price


def last_iteration(graph: Graph, done: TaskTimes, number: int | None = None) -> IterationTimeline:
    """The last full iteration, or that of a number, counted from its start."""
    iteration = len(graph.starts) - 2 if number is None else number
    first, following = graph.starts[iteration : iteration + 2]
    start, end = done.began_s[first], done.began_s[following]
    computing = [
        number
        for number, task in enumerate(graph.tasks)
        if task.kind is TaskKind.COMPUTE and (task.iteration == iteration or number == following)
    ]
    computing.sort(key=lambda number: (done.began_s[number], number))
    spans: list[TimelineSpan] = []
    free, exposed = start, 0.0
    for number in computing:
        task, began = graph.tasks[number], done.began_s[number]
        if began > free:
            cause = max(task.after, key=lambda other: done.ended_s[other])
            spans.append(TimelineSpan("wait", graph.tasks[cause].group, free - start, began - start))
            exposed += began - free
        if number != following:
            spans.append(TimelineSpan(task.phase, task.layer, began - start, done.ended_s[number] - start))
        free = done.ended_s[number]
    spans.extend(
        TimelineSpan(task.collective, task.group, began - start, ended - start)
        for task, began, ended in zip(graph.tasks, done.began_s, done.ended_s, strict=True)
        if task.kind is TaskKind.COLLECTIVE and start <= began < end
    )
    spans.sort(key=lambda span: span.start_s)
    return IterationTimeline(end - start, exposed, tuple(spans))
