"""Runs a graph of tasks on a whole cluster: every rank, every link, every endpoint, all at once.

Where `weft.training.single_channel` takes the time of a collective from a table, here its transfers are
simulated, beside those of other collectives, beside computing, through the resources of the endpoints.
Slower, and right about what collectives do to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.errors import InputError, SimulationError
from weft.notebook_display import ShortRepr
from weft.simulation import LocalWork
from weft.training.endpoint_resources import CHANNEL, COMPUTE, Equipment
from weft.training.endpoints import ENDPOINTS, Endpoint
from weft.training.single_channel import TaskTimes, last_iteration
from weft.training.steady_state import find_steady_window
from weft.training.task_graph import TaskKind
from weft.training.while_sending import MOST_PASSES, SETTLED, Amounts, stretch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from weft.schedule import Schedule
    from weft.simulation import WorkflowResult
    from weft.topology import Topology
    from weft.training.endpoint_cost import Slowdowns
    from weft.training.iteration import IterationTimeline
    from weft.training.schedules import Chooser
    from weft.training.steady_state import SteadyWindow
    from weft.training.task_graph import Graph, RankTask

_LARGEST_JITTER: Final = 1.0
_SLOWEST: Final = 1e6


def cut(endpoint: Endpoint, collective: str, size_bytes: int, ranks: int) -> list[int]:
    """Bytes of each chunk of a collective.

    Chunks of an all-to-all are large enough for a whole message to every rank.

    Examples
    --------
    >>> cut(ENDPOINTS["ace"], "all_reduce", 100_000, 64)
    [65536, 34464]
    >>> cut(ENDPOINTS["ace"], "all_to_all", 1_000_000, 64)
    [524288, 475712]
    """
    chunk = endpoint.chunk_bytes
    if chunk is None:
        return [size_bytes]
    if collective == "all_to_all":
        chunk = max(chunk, endpoint.message_bytes * ranks)
    whole, rest = divmod(size_bytes, chunk)
    limits.check("chunks of a collective", whole + 1, limits.MAX_SEGMENTS)
    return [chunk] * whole + ([rest] if rest or not whole else [])


@dataclass(frozen=True, slots=True)
class Noise:
    """How ranks differ in what they compute.

    Parameters
    ----------
    jitter
        Standard deviation of every computation's time, as a share of it.
    stragglers
        Ranks that take so many times as long as the others.
    seed
        The same seed gives the same times.
    """

    jitter: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def check(self, ranks: int) -> None:
        """Raise an `InputError` if this cannot be."""
        if not 0 <= self.jitter <= _LARGEST_JITTER:
            msg = f"a jitter of {self.jitter}: expected a share of the time, 0 to {_LARGEST_JITTER:g}"
            raise InputError(msg)
        for rank, factor in self.stragglers.items():
            if not 0 <= rank < ranks or not 0 < factor <= _SLOWEST:
                allowed = f"ranks are 0 to {ranks - 1}, factors above 0 and at most {_SLOWEST:,.0f}"
                raise InputError(f"straggler {rank}, {factor} times as slow: {allowed}")


@dataclass(frozen=True, eq=False, repr=False)
class ClusterRun(ShortRepr):
    """The times of a graph on a cluster.

    Parameters
    ----------
    timeline
        The last full iteration as rank 0 saw it.
    steady
        The last iterations, over which the next two are means.
    exposed_s
        Seconds of an iteration in which a rank computes nothing, on average.
    computing_s
        Seconds of an iteration in which a rank computes, on average.
    run_ps
        From the beginning to the end of all iterations.
    iterations
        How many these were.
    began_ps, ended_ps
        Of each task of the graph at each rank.
    flow
        Times of everything, from the engine, whose tasks are chunks where collectives are cut.
    equipment
        On what it ran.
    """

    timeline: IterationTimeline
    steady: SteadyWindow
    exposed_s: float
    computing_s: float
    run_ps: int
    iterations: int
    began_ps: NDArray[np.int64]
    ended_ps: NDArray[np.int64]
    flow: WorkflowResult
    equipment: Equipment

    @property
    def seconds(self) -> float:
        """Seconds of an iteration in the steady state."""
        return self.steady.seconds

    @property
    def link_use(self) -> NDArray[np.float64]:
        """Share of the time that each link is busy."""
        links = self.equipment.flow.topology.links
        return self.flow.busy_ps[:links] / max(1, self.run_ps)

    def resource_use(self) -> dict[str, float]:
        """Share of the time that each kind of resource is busy, on average over ranks; links included."""
        topology = self.equipment.flow.topology
        busy = self.flow.busy_ps[topology.links :].reshape(-1, topology.ranks) / max(1, self.run_ps)
        names = [resource.name for resource in self.equipment.flow.resources]
        found = {name: float(row.mean()) for name, row in zip(names, busy, strict=True)}
        return found | {"links": float(self.link_use.mean())}


@dataclass(frozen=True, repr=False)
class Cluster(ShortRepr):
    """A network with endpoints and schedules, on which graphs of tasks run.

    Parameters
    ----------
    topology
        The network.
    choose
        The schedules; `by_algorithm` makes one.
    endpoint
        What every rank has; by default communication costs it nothing.
    channels
        Collectives that may be under way at a time, in the order in which the first rank begins them; None
        for any number. With chunks there are any number, and an engine has its own bound.
    overhead_s
        Seconds that each collective takes before its first transfer.
    noise
        How ranks differ.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> from weft.training import Layer, by_algorithm, policies
    >>> model = [Layer("a", 4_000_000, 0.001, 0.002), Layer("b", 4_000_000, 0.001, 0.002)]
    >>> topology = load_topology("ring:4@bw=1GB/s,lat=1us")
    >>> cluster = Cluster(topology, by_algorithm(topology, "ring"))
    >>> round(cluster.run(policies.find("wfbp").build(model)).seconds, 6)
    0.016012
    """

    topology: Topology
    choose: Chooser
    endpoint: Endpoint = ENDPOINTS["free"]
    channels: int | None = 1
    overhead_s: float = 0.0
    noise: Noise = Noise()

    def run(self, graph: Graph, *, record: bool = False, slowdowns: Slowdowns | None = None) -> ClusterRun:
        """Simulate a graph of at least two iterations.

        Parameters
        ----------
        graph
            Of a policy.
        record
            Keep what every link and resource did, for a trace.
        slowdowns
            Of the layers while a collective is under way at their rank; none by default. Such a graph is
            simulated several times (`weft.training.while_sending`).

        Raises
        ------
        InputError
            If the noise or the graph cannot be.
        SimulationError
            If times with slowdowns do not settle.
        LimitError
            If it is too much for the engine.
        """
        self.noise.check(self.topology.ranks)
        if not 0 <= self.overhead_s < math.inf:
            raise InputError(f"an overhead of {self.overhead_s} s: a time is at least 0 and finite")
        if len(graph.starts) < 2:
            msg = f"a graph of {len(graph.starts)} iterations has no steady state; build at least 2"
            raise InputError(msg)
        count = len(graph.tasks) * self.topology.ranks
        limits.check("tasks of all ranks", count, limits.MAX_SEGMENTS)
        if slowdowns is None:
            return self._pass(_Builder(self, graph), graph, record=record)
        return self._settle(graph, slowdowns, record=record)

    def _pass(self, builder: _Builder, graph: Graph, *, record: bool) -> ClusterRun:
        found = builder.equipment.flow.run(record=record)
        return _judge(graph, found, np.array(builder.tasks), builder.equipment)

    def _settle(self, graph: Graph, slowdowns: Slowdowns, *, record: bool) -> ClusterRun:
        """Repeat a run until computing takes as long as what is under way beside it makes it take."""
        amounts: Amounts | None = None
        before = math.inf
        for _ in range(MOST_PASSES):
            builder = _Builder(self, graph, amounts)
            run = self._pass(builder, graph, record=record)
            if abs(run.seconds - before) <= SETTLED * run.seconds:
                return run
            before = run.seconds
            amounts = stretch(graph, run.began_ps, run.ended_ps, builder.whole, slowdowns)
        msg = f"computing beside sending did not settle in {MOST_PASSES} passes"
        raise SimulationError(f"{msg}; use an endpoint without :while-sending")


class _Builder:
    """Turns the tasks of a graph into tasks of the engine."""

    def __init__(self, cluster: Cluster, graph: Graph, amounts: Amounts | None = None) -> None:
        self.cluster = cluster
        self.whole: Amounts = {}
        """Picoseconds of each computation at each rank with nothing under way."""
        self._amounts = amounts
        sizes = [task.size_bytes for task in graph.tasks if task.collective == "all_reduce"]
        engine = cluster.endpoint.engine
        main = cluster.choose("all_reduce", max(sizes, default=1))[0] if engine is not None else None
        channels = cluster.channels if cluster.endpoint.chunk_bytes is None else None
        self.equipment = Equipment(cluster.topology, cluster.endpoint, main, channels)
        self._patterns: dict[tuple[str, int], tuple[Schedule, int]] = {}
        self._random = np.random.default_rng(cluster.noise.seed)
        self._slow = np.ones(cluster.topology.ranks)
        for rank, factor in cluster.noise.stragglers.items():
            self._slow[rank] = factor
        self.tasks: list[int] = []
        for number, task in enumerate(graph.tasks):
            after = [self.tasks[before] for before in task.after]
            self.tasks.append(self._add(number, task, after))

    def _add(self, number: int, task: RankTask, after: Sequence[int]) -> int:
        flow = self.equipment.flow
        if task.kind is TaskKind.COMPUTE:
            amount = self._amount(task.seconds)
            self.whole[number] = np.broadcast_to(amount, self.cluster.topology.ranks).astype(np.int64)
            if self._amounts is not None:
                amount = self._amounts[number]
            return flow.task(task.name, [LocalWork(COMPUTE, amount)], after=after)
        if task.kind is TaskKind.DELAY:
            return flow.task(task.name, [LocalWork(None, _picoseconds(task.seconds))], after=after)
        sizes = cut(self.cluster.endpoint, task.collective, task.size_bytes, self.cluster.topology.ranks)
        if len(sizes) == 1:
            return self._send(task, sizes[0], after)
        return flow.task(task.name, [], after=[self._send(task, size, after) for size in sizes])

    def _send(self, task: RankTask, size_bytes: int, after: Sequence[int]) -> int:
        equipment = self.equipment
        if size_bytes == 0:
            return equipment.flow.task(task.name, [], after=after)
        key = task.collective, size_bytes
        if key not in self._patterns:
            schedule, segment = self.cluster.choose(task.collective, size_bytes)
            self._patterns[key] = schedule, equipment.pattern(schedule, size_bytes, segment)
        schedule, pattern = self._patterns[key]
        stages = list(equipment.stages(schedule, pattern, size_bytes))
        if self.cluster.overhead_s:
            stages.insert(0, LocalWork(None, _picoseconds(self.cluster.overhead_s)))
        pool = CHANNEL if equipment.pooled else None
        return equipment.flow.task(task.name, stages, after=after, priority=task.priority, pool=pool)

    def _amount(self, seconds: float) -> int | NDArray[np.int64]:
        noise = self.cluster.noise
        if not noise.jitter and not noise.stragglers:
            return _picoseconds(seconds)
        factors = np.maximum(0.0, self._random.normal(1.0, noise.jitter, len(self._slow))) * self._slow
        return np.ceil(seconds * factors * units.PS_PER_S).astype(np.int64)


def _picoseconds(seconds: float) -> int:
    return math.ceil(seconds * units.PS_PER_S)


def _judge(graph: Graph, flow: WorkflowResult, tasks: NDArray[np.int64], equipment: Equipment) -> ClusterRun:
    # What is cut into chunks is several tasks of the engine, and begins with the first that does.
    began = np.minimum.reduceat(flow.began_ps, np.concatenate([[0], tasks[:-1] + 1]))
    ended = flow.ended_ps[tasks]
    starts = began[graph.starts].max(axis=1)
    steady = find_steady_window(began[graph.starts])
    iterations, count = len(graph.starts), len(steady.intervals_s)
    mine = [
        number
        for number, task in enumerate(graph.tasks)
        if task.kind is TaskKind.COMPUTE and iterations - 1 - count <= task.iteration < iterations - 1
    ]
    computing = float((ended[mine] - began[mine]).sum(axis=0).mean()) / count / units.PS_PER_S
    first = TaskTimes(
        tuple((began[:, 0] / units.PS_PER_S).tolist()),
        tuple((ended[:, 0] / units.PS_PER_S).tolist()),
        tuple((np.diff(starts) / units.PS_PER_S).tolist()),
        float(ended[:, 0].max()) / units.PS_PER_S,
    )
    return ClusterRun(
        timeline=last_iteration(graph, first),
        steady=steady,
        exposed_s=max(0.0, steady.seconds - computing),
        computing_s=computing,
        run_ps=flow.time_ps,
        iterations=iterations,
        began_ps=began,
        ended_ps=ended,
        flow=flow,
        equipment=equipment,
    )
