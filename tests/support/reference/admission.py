"""Who gets a token, in the reference engine of workflows.

A pool at a rank is a *desk* with some tokens. All desks follow one order of tasks, which grows as it is
needed: at each desk a task gets its token after all that are before it in the order and take from that pool,
too. A desk that is through with the order, and has a token left and somebody waiting, adds to the order the
one that comes first there. docs/workflow.md says why this cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.simulation.tasks import Task


class Desk(NamedTuple):
    """A pool at a rank."""

    rank: int
    pool: int


class Admission:
    """The desks of all ranks, and the one order of tasks."""

    def __init__(self, tasks: Sequence[Task], ranks: int, tokens: Sequence[int]) -> None:
        self.priority = [task.priority for task in tasks]
        self.pools = [{task.pool, *(stage.pool for stage in task.stages)} for task in tasks]
        self.free = {
            Desk(rank, pool): tokens[pool] for rank, pool in product(range(ranks), range(len(tokens)))
        }
        self.waiting: dict[Desk, dict[int, int]] = defaultdict(dict)
        self.served: dict[Desk, set[int]] = defaultdict(set)
        self.order: list[int] = []

    def ask(self, desk: Desk, task: int, now: int) -> None:
        """Let a task wait for a token from now on."""
        self.waiting[desk][task] = now

    def release(self, desk: Desk) -> None:
        """Take a token back."""
        self.free[desk] += 1

    def grant(self) -> Iterator[tuple[Desk, int]]:
        """Hand out what can be handed out now: desks by rank, then by pool."""
        for desk in self.free:
            while self.free[desk] and (task := self._next(desk)) is not None:
                del self.waiting[desk][task]
                self.served[desk].add(task)
                self.free[desk] -= 1
                yield desk, task

    def _next(self, desk: Desk) -> int | None:
        waiting = self.waiting[desk]
        for task in self.order:
            if desk.pool in self.pools[task] and task not in self.served[desk]:
                return task if task in waiting else None
        if not waiting:
            return None
        first = min(waiting, key=lambda task: (self.priority[task], waiting[task], task))
        self.order.append(first)
        return first
