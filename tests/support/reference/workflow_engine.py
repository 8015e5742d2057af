"""A small engine for workflows that can be checked by reading, and that checks the fast one.

`run_reference` gives the same picoseconds as `Workflow.run` and shares no code with it. docs/workflow.md has
the rules. Three concepts: *servers* (links, and what ranks have) serve one job at a time; a *gate* opens when
all it waits for has passed; `Run` lets every rank go through the stages of its tasks. What waits for what
inside a collective comes from `lowering`, who gets a token from `admission`.

The rule that leaves room: instants are handled in batches. A batch is all that is queued for the earliest
instant, and all that this makes happen at the same instant. Then tokens are handed out; if any was, what
follows from it is done first, and tokens are handed out again. Only then every free server takes one job.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from support.reference.admission import Admission, Desk
from support.reference.link_sharing import Agenda
from support.reference.lowering import Passed, Segment, cut_segments, derive_waits
from weft.errors import SimulationError
from weft.schedule import Op
from weft.simulation.tasks import Part
from weft.units import transfer_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.simulation.tasks import Collective, Passage
    from weft.simulation.workflow import Workflow


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """When each task began and ended at each rank, and how long each resource was busy; links come first."""

    time_ps: int
    began_ps: list[list[int]]
    ended_ps: list[list[int]]
    busy_ps: list[int]


def run_reference(flow: Workflow) -> ReferenceRun:
    """Carry out a workflow.

    Raises
    ------
    SimulationError
        If a task never ends.

    Examples
    --------
    >>> import weft
    >>> from weft.simulation import LocalWork, Resource, Workflow
    >>> flow = Workflow(weft.load_topology("ring:2"), [Resource("compute", 10**12)])
    >>> flow.task("forward", [LocalWork(0, 7)])
    0
    >>> flow.task("backward", [LocalWork(0, 10)], after=[0])
    1
    >>> run_reference(flow).ended_ps
    [[7, 7], [17, 17]]
    """
    return Run(flow).to_the_end()


# Servers


class Hop(NamedTuple):
    """A server on the way of a job, and how many bytes pass it."""

    server: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """What passes servers: a segment of a collective, or a rank's own work, which passes one.

    Parameters
    ----------
    turn
        Its place among those that wait for the same server: the smallest goes first.
    path
        What it passes.
    left, arrived
        Called when it is out of the first server, and when it is through the last.
    """

    turn: tuple[int, int, tuple[int, ...]]
    path: tuple[Hop, ...]
    left: Callable[[], None]
    arrived: Callable[[], None]


class Servers:
    """Each serves one job at a time; a job goes on when its head is at the next, which never runs dry."""

    def __init__(self, bandwidth: Sequence[int], latency_ps: Sequence[int], agenda: Agenda) -> None:
        self.bandwidth, self.latency_ps, self.agenda = bandwidth, latency_ps, agenda
        self.waiting: list[list[tuple[tuple[int, int, tuple[int, ...]], int, Job, int]]] = [
            [] for _ in bandwidth
        ]
        self.occupied: set[int] = set()
        self.busy_ps = [0] * len(bandwidth)
        self._tickets = count()

    def offer(self, job: Job, hop: int = 0) -> None:
        """Let a job wait for the server of a hop from now on; without any it is through at once."""
        if job.path:
            entry = (job.turn, next(self._tickets), job, hop)
            heapq.heappush(self.waiting[job.path[hop].server], entry)
        else:
            job.left()
            job.arrived()

    def start(self) -> None:
        """Let every free server take the next of those that wait for it."""
        for server, waiting in enumerate(self.waiting):
            if waiting and server not in self.occupied:
                _, _, job, hop = heapq.heappop(waiting)
                self._occupy(server, job, hop)

    def _occupy(self, server: int, job: Job, hop: int) -> None:
        now, at = self.agenda.now, self.agenda.at
        duration = self._duration(job.path[hop])
        head = now + self.latency_ps[server]
        self.occupied.add(server)
        self.busy_ps[server] += duration
        at(now + duration, partial(self.occupied.discard, server))
        if hop == 0:
            at(now + duration, job.left)
        if hop + 1 == len(job.path):
            at(head + duration, job.arrived)
        else:
            onward = self._duration(job.path[hop + 1])
            at(head + max(0, duration - onward), partial(self.offer, job, hop + 1))

    def _duration(self, hop: Hop) -> int:
        return transfer_ps(hop.size_bytes, self.bandwidth[hop.server])


# Gates


class Entered(NamedTuple):
    """That a rank has begun with a part of a collective."""

    rank: int
    part: int


class Gates:
    """What one task's ranks and segments wait for."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.waiting: dict[Passed | Entered, list[tuple[set[Passed | Entered], Callable[[], None]]]] = (
            defaultdict(list)
        )

    def put(self, milestones: Iterable[Passed | Entered], then: Callable[[], None]) -> None:
        """Let something happen as soon as all of these have passed, at the same instant."""
        missing = set(milestones)
        for milestone in missing:
            self.waiting[milestone].append((missing, then))

    def pass_(self, milestone: Passed | Entered) -> None:
        """Strike a milestone off."""
        for missing, then in self.waiting.pop(milestone, ()):
            missing.remove(milestone)
            if not missing:
                self.agenda.at(self.agenda.now, then)


# The run


class Pattern:
    """The segments of a collective, the part each belongs to, and what it passes."""

    def __init__(self, flow: Workflow, given: Collective) -> None:
        self.flow, self.given = flow, given
        self.segments = cut_segments(given.schedule, given.size_bytes, given.segment_bytes)

    @property
    def parts(self) -> range:
        """Numbers of its parts."""
        return range(len(self.given.parts) + 1)

    @cached_property
    def part(self) -> list[int]:
        """By segment."""
        return [sum(step <= segment.step for step in self.given.parts) for segment in self.segments]

    def path(self, segment: Segment) -> tuple[Hop, ...]:
        """Return what is on its way: the sender's passages, links, the receiver's; nothing within a rank."""
        if not segment.route:
            return ()
        links = (Hop(link, segment.size_bytes) for link in segment.route)
        return (
            *self._endpoint(segment, segment.src, self.given.before),
            *links,
            *self._endpoint(segment, segment.dst, self.given.after),
        )

    def _endpoint(self, segment: Segment, rank: int, passages: Sequence[Passage]) -> Iterable[Hop]:
        reduces = self.given.schedule.op[segment.row] == Op.REDUCE
        for passage in passages:
            ratio = passage.reduce if reduces else passage.copy
            if ratio:
                server = server_of(self.flow, passage.resource, rank)
                yield Hop(server, math.ceil(segment.size_bytes * ratio))


def server_of(flow: Workflow, resource: int, rank: int) -> int:
    """Return the number of what a rank has; links come first."""
    return flow.topology.links + resource * flow.topology.ranks + rank


class Run:
    """One simulation under way: the stage that each rank is in, task by task."""

    def __init__(self, flow: Workflow) -> None:
        self.flow, self.ranks, self.agenda = flow, flow.topology.ranks, Agenda()
        self.tasks = [flow.task_at(number) for number in range(flow.tasks)]
        self.patterns = [Pattern(flow, flow.pattern_at(number)) for number in range(flow.patterns)]
        own = [resource for resource in flow.resources for _ in range(self.ranks)]
        self.servers = Servers(
            [*flow.topology.bandwidth.tolist(), *(resource.bandwidth for resource in own)],
            [*flow.topology.latency_ps.tolist(), *(resource.latency_ps for resource in own)],
            self.agenda,
        )
        self.admission = Admission(self.tasks, self.ranks, flow.pools)
        self.gates: dict[int, Gates] = {}
        self.stage: dict[tuple[int, int], int] = {}
        self.held: dict[tuple[int, int], int | None] = {}
        self.began_ps: dict[tuple[int, int], int] = {}
        self.ended_ps: dict[tuple[int, int], int] = {}

    def to_the_end(self) -> ReferenceRun:
        """Let everything happen."""
        for number, rank in product(range(len(self.tasks)), range(self.ranks)):
            if not self.tasks[number].after:
                self.agenda.at(0, partial(self.enter, number, rank))
        while self.agenda.advance():
            grants = list(self.admission.grant())
            for desk, number in grants:
                self.agenda.at(self.agenda.now, partial(self.granted, number, desk))
            if not grants:
                self.servers.start()
        self._check_all_ended()
        table = [[(number, rank) for rank in range(self.ranks)] for number in range(len(self.tasks))]
        return ReferenceRun(
            time_ps=self.agenda.now,
            began_ps=[[self.began_ps[at] for at in row] for row in table],
            ended_ps=[[self.ended_ps[at] for at in row] for row in table],
            busy_ps=self.servers.busy_ps,
        )

    def enter(self, number: int, rank: int) -> None:
        """All that a task comes after has ended at this rank; it may need a token still."""
        self.stage[number, rank] = -1
        pool = self.tasks[number].pool
        if pool is None:
            self.next_stage(number, rank)
        else:
            self.admission.ask(Desk(rank, pool), number, self.agenda.now)

    def next_stage(self, number: int, rank: int) -> None:
        """A rank is through with a stage; the next may need a token."""
        stages = self.tasks[number].stages
        following = self.stage[number, rank] + 1
        if following == len(stages):
            self.end(number, rank)
            return
        pool = stages[following].pool
        if pool is None:
            self.begin_stage(number, rank)
        else:
            self.admission.ask(Desk(rank, pool), number, self.agenda.now)

    def granted(self, number: int, desk: Desk) -> None:
        """Go on with a token: it was the task's own, or the next stage's."""
        if desk.pool == self.tasks[number].pool:
            self.next_stage(number, desk.rank)
        else:
            self.begin_stage(number, desk.rank)

    def begin_stage(self, number: int, rank: int) -> None:
        """Begin the next stage; if it took a token, only now give back the one before."""
        self.stage[number, rank] += 1
        self.began_ps.setdefault((number, rank), self.agenda.now)
        task = self.tasks[number]
        stage = task.stages[self.stage[number, rank]]
        if stage.pool is not None:
            self.hold(number, rank, stage.pool)
        then = partial(self.next_stage, number, rank)
        if isinstance(stage, Part):
            self.gates_of(number, stage.pattern).pass_(Entered(rank, stage.part))
            return
        amount = int(np.broadcast_to(stage.amount, self.ranks)[rank])
        if amount == 0 or stage.resource is None:
            self.agenda.at(self.agenda.now + amount, then)
        else:
            hop = Hop(server_of(self.flow, stage.resource, rank), amount)
            self.servers.offer(Job((task.priority, number, ()), (hop,), left=lambda: None, arrived=then))

    def hold(self, number: int, rank: int, pool: int | None) -> None:
        """Hold a stage's token in place of the one before; none at the end."""
        before = self.held.get((number, rank))
        if before is not None:
            self.admission.release(Desk(rank, before))
        self.held[number, rank] = pool

    def end(self, number: int, rank: int) -> None:
        """End a task at a rank, and let it enter those that waited for nothing else."""
        self.hold(number, rank, None)
        task = self.tasks[number]
        if task.pool is not None:
            self.admission.release(Desk(rank, task.pool))
        self.began_ps.setdefault((number, rank), self.agenda.now)
        self.ended_ps[number, rank] = self.agenda.now
        for other, follower in enumerate(self.tasks):
            if number in follower.after and self._all_ended(follower.after, rank):
                self.agenda.at(self.agenda.now, partial(self.enter, other, rank))

    def gates_of(self, number: int, pattern: int) -> Gates:
        """Gates of the collective that a task carries out, made when the first rank comes to it."""
        if number not in self.gates:
            self.gates[number] = Gates(self.agenda)
            self._set_up(number, self.gates[number], self.patterns[pattern])
        return self.gates[number]

    def _set_up(self, number: int, gates: Gates, pattern: Pattern) -> None:
        duties: dict[Entered, set[Passed]] = {
            Entered(rank, part): set() for rank, part in product(range(self.ranks), pattern.parts)
        }
        waits = derive_waits(pattern.segments)
        for segment, part, wait in zip(pattern.segments, pattern.part, waits, strict=True):
            sender, receiver = Entered(segment.src, part), Entered(segment.dst, part)
            job = Job(
                (self.tasks[number].priority, number, segment.key),
                pattern.path(segment),
                left=partial(gates.pass_, segment.left),
                arrived=partial(gates.pass_, segment.arrived),
            )
            gates.put({*wait.start, sender}, partial(self.servers.offer, job))
            gates.put({*wait.apply, receiver}, partial(gates.pass_, segment.applied))
            duties[sender].add(segment.left)
            duties[receiver].add(segment.applied)
        for entered, duty in duties.items():
            gates.put({*duty, entered}, partial(self.next_stage, number, entered.rank))

    def _all_ended(self, numbers: Iterable[int], rank: int) -> bool:
        return all((number, rank) in self.ended_ps for number in numbers)

    def _check_all_ended(self) -> None:
        for number, rank in product(range(len(self.tasks)), range(self.ranks)):
            if (number, rank) in self.ended_ps or not self._all_ended(self.tasks[number].after, rank):
                continue
            msg = f"no progress: task {self.tasks[number].name} never ends at rank {rank}"
            for desk, waiting in self.admission.waiting.items():
                if desk.rank == rank and number in waiting:
                    msg += f", waits for pool {desk.pool}"
            raise SimulationError(msg)
