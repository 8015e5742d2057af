"""Many collectives and other work at once, on one network: a graph of tasks that every rank carries out.

What a run means is written down in docs/workflow.md. In one paragraph: a task is a row of stages, and every
rank goes through them; a stage is a part of a collective, or work on a resource of the rank's own (its
compute unit, a memory port), or a pause. A task begins at a rank when those it comes after have ended
there; ranks meet in collectives only. Links and resources serve the waiting piece of the smallest (priority,
task, segment). What is held for a while, such as a buffer, is a token of a pool. The C++ half is
``cpp/simulation/workflow.cpp``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import _core, limits
from weft.errors import InputError, LimitError, SimulationError
from weft.notebook_display import ShortRepr
from weft.schedule.paths import find_paths
from weft.simulation.tasks import Collective, LocalWork, Part, Passage, Resource, Task, check_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.topology import Topology

MOST_POOLS: Final = 64
MOST_PRIORITY: Final = 1 << 62
_NONE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class ResourceSpans:
    """What every resource did, in columns; resources are links first, see `Workflow.resource_name`."""

    task: NDArray[np.int32]
    resource: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    start_ps: NDArray[np.int64]
    end_ps: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class WorkflowResult(ShortRepr):
    """Times of one run.

    Parameters
    ----------
    time_ps
        When the last thing happened.
    began_ps, ended_ps
        Of each task at each rank.
    busy_ps
        How long each resource was occupied; links first.
    segments, events
        How much work the engine had.
    spans
        All of it, if asked for.
    cpu_seconds
        What the simulation cost.
    """

    time_ps: int
    began_ps: NDArray[np.int64]
    ended_ps: NDArray[np.int64]
    busy_ps: NDArray[np.int64]
    segments: int
    events: int
    spans: ResourceSpans | None
    cpu_seconds: float


class Workflow:
    """A graph of tasks on a topology, and what its ranks have besides links.

    Parameters
    ----------
    topology
        Where it runs.
    resources
        What every rank has one of; known by their numbers.
    pools
        Tokens that every rank has, pool by pool.

    Examples
    --------
    >>> import weft
    >>> from weft import units
    >>> ring = weft.algorithms.ring.all_reduce(weft.load_topology("ring:4@bw=1GB/s,lat=1us"))
    >>> flow = Workflow(ring.topology, [Resource("compute", units.PS_PER_S)])
    >>> sums = flow.pattern(ring, 4_000_000)
    >>> first = flow.task("backward", [LocalWork(0, 5_000_000)])
    >>> flow.task("all-reduce", [Part(sums)], after=[first])
    1
    >>> flow.run().time_ps
    6011000000
    """

    def __init__(
        self, topology: Topology, resources: Sequence[Resource] = (), pools: Sequence[int] = ()
    ) -> None:
        limits.check("resources of all ranks", len(resources) * topology.ranks, limits.MAX_SEGMENTS)
        check_whole("pools", *pools)
        if len(pools) > MOST_POOLS or any(not 1 <= tokens <= limits.MAX_SEGMENTS for tokens in pools):
            raise InputError(f"{len(pools)} pools: at most {MOST_POOLS}, of at least one token each")
        self.topology, self.resources, self.pools = topology, tuple(resources), tuple(pools)
        self.names: list[str] = []
        self._tasks: list[Task] = []
        self._collectives: list[Collective] = []
        self._patterns: list[_core.Pattern] = []
        self._stages: list[tuple[int, int, int, int, int]] = []
        self._amounts: list[NDArray[np.int64]] = []
        self._known_amounts: dict[int, int] = {}

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self.names)

    @property
    def patterns(self) -> int:
        """How many there are."""
        return len(self._patterns)

    def task_at(self, number: int) -> Task:
        """Return a task as it was given."""
        return self._tasks[number]

    def pattern_at(self, number: int) -> Collective:
        """Return what a pattern was made from."""
        return self._collectives[number]

    def resource_name(self, number: int) -> str:
        """Name a link, or what a rank has."""
        links, ranks = self.topology.links, self.topology.ranks
        if number < links:
            return self.topology.link_name(number)
        kind, rank = divmod(number - links, ranks)
        return f"{self.resources[kind].name} of {rank}"

    def pattern(
        self,
        schedule: Schedule,
        size_bytes: int,
        *,
        segment_bytes: int | None = None,
        parts: Sequence[int] = (),
        before: Sequence[Passage] = (),
        after: Sequence[Passage] = (),
    ) -> int:
        """Prepare a collective for any number of tasks.

        Parameters
        ----------
        schedule
            On this workflow's topology.
        size_bytes, segment_bytes
            As for `weft.simulate`.
        parts
            Steps at which its second, third, .. part begins.
        before, after
            What transfers pass at their sender and at their receiver.

        Returns
        -------
        int
            Its number, for `Part`.
        """
        given = Collective(schedule, size_bytes, segment_bytes, tuple(parts), tuple(before), tuple(after))
        self._check_collective(given)
        self._patterns.append(self._lower(given))
        self._collectives.append(given)
        return len(self._patterns) - 1

    def _check_collective(self, given: Collective) -> None:
        schedule, segment_bytes, parts = given.schedule, given.segment_bytes, given.parts
        if schedule.topology != self.topology:
            msg = f"{schedule.algorithm} was made for {schedule.topology.name}, not for {self.topology.name}"
            raise InputError(msg)
        check_whole(f"pattern of {schedule.algorithm}", given.size_bytes, segment_bytes or 0, *parts)
        if segment_bytes is not None and segment_bytes < 1:
            msg = f"segment_bytes {segment_bytes}: must be at least 1, or None to send each message whole"
            raise InputError(msg)
        limits.check("size_bytes", max(given.size_bytes, segment_bytes or 0), limits.MAX_SIZE_BYTES)
        steps = schedule.steps
        if list(parts) != sorted({step for step in parts if 0 < step < steps}):
            rule = f"each begins at a later step than the one before, from 1 to {steps - 1}"
            raise InputError(f"{schedule.algorithm} of {steps} steps: parts {list(parts)}: {rule}")

    def _lower(self, given: Collective) -> _core.Pattern:
        schedule = given.schedule
        number = np.searchsorted(np.asarray(given.parts, np.int64), np.arange(schedule.steps), side="right")
        try:
            return _core.make_pattern(
                table=schedule.table,
                ranks=self.topology.ranks,
                slots=schedule.slots,
                chunk_bytes=schedule.chunk_bytes(given.size_bytes, 1),
                segment_bytes=given.segment_bytes or 0,
                **find_paths(schedule)._asdict(),
                part_of_step=number.astype(np.int32),
                before=self._passages(given.before),
                after=self._passages(given.after),
                max_segments=limits.MAX_SEGMENTS,
            )
        except _core.TooMany as error:
            msg = f"more than {limits.MAX_SEGMENTS:,} {error}; use larger segments"
            raise LimitError(f"{schedule.algorithm}: {msg}") from error

    def task(
        self,
        name: str,
        stages: Sequence[Part | LocalWork],
        *,
        after: Sequence[int] = (),
        priority: int = 0,
        pool: int | None = None,
    ) -> int:
        """Add a task.

        Parameters
        ----------
        name
            For people.
        stages
            What every rank does, one after the other; those that are parts are of one pattern.
        after
            Earlier tasks that a rank ends first.
        priority
            The smaller goes first wherever several wait.
        pool
            A token of this pool is taken before the first stage, and held until the last is over.

        Returns
        -------
        int
            Its number.
        """
        number = self.tasks
        limits.check("tasks at all ranks", (number + 1) * self.topology.ranks, limits.MAX_SEGMENTS)
        limits.check("stages of all tasks", len(self._stages) + len(stages), limits.MAX_SEGMENTS)
        check_whole(f"task {name}", priority, *after)
        limits.check(f"task {name}: its priority or that negated", abs(priority), MOST_PRIORITY)
        wrong = next((before for before in after if not 0 <= before < number), None)
        if wrong is not None:
            raise InputError(f"task {name}: after {wrong}; there are tasks 0 to {number - 1} before it")
        found = [stage for stage in stages if isinstance(stage, Part)]
        if len({stage.pattern for stage in found}) > 1:
            raise InputError(f"task {name}: its stages are parts of several patterns; make a task for each")
        if len({stage.part for stage in found}) < len(found):
            msg = f"task {name}: enters parts {[stage.part for stage in found]}; each once at most"
            raise InputError(msg)
        held = [stage.pool for stage in stages if stage.pool is not None]
        if pool is not None:
            held.append(pool)
        if len(set(held)) < len(held) or any(not 0 <= one < len(self.pools) for one in held):
            msg = f"task {name}: takes from pools {held}; each of 0 to {len(self.pools) - 1} once at most"
            raise InputError(msg)
        self._stages += [self._stage(name, stage) for stage in stages]
        self.names.append(name)
        self._tasks.append(Task(name, tuple(stages), tuple(dict.fromkeys(after)), priority, pool))
        return number

    def run(self, *, record: bool = False) -> WorkflowResult:
        """Carry it all out.

        Parameters
        ----------
        record
            Keep what every resource did, for a trace.

        Raises
        ------
        LimitError
            If it is too much, or takes too long, for the engine.
        SimulationError
            If a task never ends.
        """
        began = time.process_time()
        found = self._run(record)
        if found["stuck_task"] >= 0:
            name, rank, pool = self.names[found["stuck_task"]], found["stuck_rank"], found["stuck_pool"]
            waits = f", waits for pool {pool}" if pool >= 0 else ""
            raise SimulationError(f"no progress: task {name} never ends at rank {rank}{waits}")
        shape = self.tasks, self.topology.ranks
        columns = ("task", "resource", "bytes", "start_ps", "end_ps")
        return WorkflowResult(
            began_ps=found["began_ps"].reshape(shape),
            ended_ps=found["ended_ps"].reshape(shape),
            spans=ResourceSpans(*(found[f"span_{name}"] for name in columns)) if record else None,
            cpu_seconds=time.process_time() - began,
            **{name: found[name] for name in ("time_ps", "busy_ps", "segments", "events")},
        )

    def _run(self, record: bool) -> dict[str, Any]:
        ranks, tasks = self.topology.ranks, self._tasks
        rates = [np.full(ranks, resource.bandwidth, np.int64) for resource in self.resources]
        latencies = [np.full(ranks, resource.latency_ps, np.int64) for resource in self.resources]
        *narrow, wide = np.array(self._stages, np.int64).reshape(-1, 5).T
        pattern, part, resource, pool = (np.ascontiguousarray(column, np.int32) for column in narrow)
        amounts = np.ascontiguousarray(wide)
        try:
            return _core.run_workflow(
                ranks=ranks,
                rate=np.concatenate([self.topology.bandwidth, *rates]),
                latency_ps=np.concatenate([self.topology.latency_ps, *latencies]),
                capacity=np.array(self.pools, np.int32),
                patterns=self._patterns,
                stages=_core.StageColumns(
                    pattern=pattern, part=part, resource=resource, amounts=amounts, pool=pool
                ),
                amounts=np.concatenate([*self._amounts, np.zeros(0, np.int64)]),
                tasks=_core.TaskColumns(
                    priority=np.array([task.priority for task in tasks], np.int64),
                    stage_start=np.array([0, *accumulate(len(task.stages) for task in tasks)], np.int32),
                    pool=np.array([_NONE if task.pool is None else task.pool for task in tasks], np.int32),
                    need_start=np.array([0, *accumulate(len(task.after) for task in tasks)], np.int64),
                    needs=np.array([need for task in tasks for need in task.after], np.int32),
                ),
                record=record,
                max_segments=limits.MAX_SEGMENTS,
                max_time_ps=limits.MAX_TIME_PS,
            )
        except OverflowError as error:
            raise limits.too_long(f"{self.tasks:,} tasks on {self.topology.name}") from error
        except _core.TooMany as error:
            msg = f"more than {limits.MAX_SEGMENTS:,} {error}; use larger segments or fewer iterations"
            raise LimitError(f"{self.tasks:,} tasks on {self.topology.name}: {msg}") from error

    def _first(self, resource: int) -> int:
        if not 0 <= resource < len(self.resources):
            raise InputError(f"resource {resource}: there are 0 to {len(self.resources) - 1}")
        return self.topology.links + resource * self.topology.ranks

    def _passages(self, passages: Sequence[Passage]) -> NDArray[np.int32]:
        rows: list[int] = []
        for passage in passages:
            rows += [self._first(passage.resource), *passage.ratios]
        return np.array(rows, np.int32)

    def _stage(self, name: str, stage: Part | LocalWork) -> tuple[int, int, int, int, int]:
        """Pattern, part, resource, pool and where its amounts begin."""
        pool = _NONE if stage.pool is None else stage.pool
        if isinstance(stage, Part):
            if not (
                0 <= stage.pattern < len(self._patterns)
                and 0 <= stage.part < self._patterns[stage.pattern].parts
            ):
                raise InputError(f"task {name}: there is no part {stage.part} of pattern {stage.pattern}")
            return stage.pattern, stage.part, _NONE, pool, 0
        resource = _NONE if stage.resource is None else self._first(stage.resource)
        return _NONE, 0, resource, pool, self._amount(name, stage.amount)

    def _amount(self, name: str, amount: int | NDArray[np.int64]) -> int:
        """Where the amounts of every rank begin; equal ones are kept once."""
        ranks = self.topology.ranks
        if isinstance(amount, int) and amount in self._known_amounts:
            return self._known_amounts[amount]
        column = np.asarray(amount)
        if column.dtype.kind not in "iu" or column.shape not in ((), (ranks,)):
            msg = f"task {name}: amounts are one whole number below 2^61, or one for each of {ranks} ranks"
            raise InputError(f"{msg}, not {column.dtype} of shape {column.shape}")
        if column.min() < 0 or column.max() > limits.MAX_TIME_PS:
            msg = f"task {name}: amounts {column.min()} to {column.max()}; they are at least 0 and below 2^61"
            raise InputError(msg)
        column = np.full(ranks, column, np.int64)  # a copy: what the caller does to his comes too late
        self._amounts.append(column)
        where = (len(self._amounts) - 1) * ranks
        if isinstance(amount, int):
            self._known_amounts[amount] = where
        return where
