"""What a rank does in some iterations of training, as tasks that wait for one another.

A policy (`weft.training.policies`) builds one, an executor runs it: `weft.training.single_channel` on one
channel with costs. Every rank does all tasks, and waits only for its own; what ranks wait for of each other
is inside the collectives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from weft import limits
from weft.errors import InputError
from weft.schedule import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterable


class TaskKind(StrEnum):
    """What a task needs: the computing unit, nothing but time, or the network."""

    COMPUTE = "compute"
    DELAY = "delay"
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class RankTask:
    """One thing that every rank does.

    Parameters
    ----------
    kind
        What it needs.
    name
        For people.
    after
        Numbers of the tasks, all earlier in the graph, that must be done on the same rank.
    seconds
        Of a computation or a delay.
    phase
        ``forward``, ``backward`` or ``update``; empty for most collectives.
    layer, group
        Which layer computes, or which group of gradients is sent; -1 for none.
    iteration
        From 0 on.
    collective, size_bytes
        Of a collective: which, and bytes of its whole buffer; of an all-to-all, bytes of each rank.
    priority
        Where several wait, the smallest goes first; among equal ones the first that was ready.
    """

    kind: TaskKind
    name: str
    after: tuple[int, ...]
    seconds: float = 0.0
    phase: str = ""
    layer: int = -1
    group: int = -1
    iteration: int = 0
    collective: str = ""
    size_bytes: int = 0
    priority: int = 0


class Graph:
    """Tasks of some iterations, in an order in which they could be done.

    `tasks` are all of them, `starts` the number of the first computation of each iteration.

    Examples
    --------
    >>> graph = Graph()
    >>> graph.begin()
    >>> forward = graph.compute("conv1", 1e-3, phase="forward", layer=0)
    >>> backward = graph.compute("conv1", 2e-3, (forward,), phase="backward", layer=0)
    >>> graph.finish([graph.collective("all_reduce", 4000, (backward,), group=0)])
    >>> len(graph.tasks), graph.starts, graph.end()
    (3, [0], (2,))
    """

    def __init__(self) -> None:
        self.tasks: list[RankTask] = []
        self.starts: list[int] = []
        self._iteration = -1
        self._end: tuple[int, ...] = ()

    def begin(self) -> None:
        """Begin the next iteration: tasks that follow belong to it."""
        self._iteration += 1

    def finish(self, after: Iterable[int]) -> None:
        """Say which tasks the end of the last iteration waits for."""
        self._end = self._known(after)

    def end(self) -> tuple[int, ...]:
        """What the end of the last iteration waits for."""
        return self._end

    def compute(
        self, name: str, seconds: float, after: Iterable[int] = (), *, phase: str, layer: int = -1
    ) -> int:
        """Add a computation; returns its number."""
        if len(self.starts) <= self._iteration:
            self.starts.append(len(self.tasks))
        return self._add(TaskKind.COMPUTE, name, after, seconds=seconds, phase=phase, layer=layer)

    def delay(
        self, name: str, seconds: float, after: Iterable[int] = (), *, phase: str = "", group: int = -1
    ) -> int:
        """Add a time that passes while others compute and send; returns its number."""
        return self._add(TaskKind.DELAY, name, after, seconds=seconds, phase=phase, group=group)

    def collective(
        self,
        collective: str,
        size_bytes: int,
        after: Iterable[int] = (),
        *,
        layer: int = -1,
        group: int = -1,
        priority: int = 0,
        name: str = "",
    ) -> int:
        """Add a collective; returns its number."""
        if collective not in COLLECTIVES:
            msg = f"collective {collective!r} is unknown; expected one of {', '.join(COLLECTIVES)}"
            raise InputError(msg)
        if size_bytes < 0:
            raise InputError(f"{collective} of {size_bytes} bytes; a size is at least 0")
        limits.check("bytes of a collective", size_bytes, limits.MAX_SIZE_BYTES)
        return self._add(
            TaskKind.COLLECTIVE,
            name or collective,
            after,
            layer=layer,
            group=group,
            collective=collective,
            size_bytes=size_bytes,
            priority=priority,
        )

    def _add(
        self, kind: TaskKind, name: str, after: Iterable[int], *, seconds: float = 0.0, **fields: Any
    ) -> int:
        known = self._known(after)
        if not 0 <= seconds < math.inf:
            raise InputError(f"task {name}: {seconds} s; a time is at least 0 and finite")
        if self._iteration < 0:
            raise InputError(f"task {name}: no iteration has begun; call begin() first")
        limits.check("tasks of a graph", len(self.tasks) + 1, limits.MAX_TASKS)
        self.tasks.append(RankTask(kind, name, known, seconds, iteration=self._iteration, **fields))
        return len(self.tasks) - 1

    def _known(self, after: Iterable[int]) -> tuple[int, ...]:
        known = tuple(dict.fromkeys(after))
        wrong = [number for number in known if not 0 <= number < len(self.tasks)]
        if wrong:
            msg = f"task {len(self.tasks)} cannot wait for {wrong[0]}: a task waits only for earlier ones"
            raise InputError(msg)
        return known
