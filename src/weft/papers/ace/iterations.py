"""Iterations of ACE's models with its five endpoints, on its four sizes of platform.

The loop is that of ASTRA-sim 1.0 (`weft.training.policies.gradient_first`): a layer's gradients are sent
when they are there, those of the first layers first, and the next forward pass waits for each layer's own.
The times of collectives are those that the engine of the workflow measures alone
(`weft.papers.ace.bandwidth`); the whole platform at once, with everything contending, is simulated for the
smaller models to see what that leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft import units
from weft.papers.ace.bandwidth import GB, all_reduce, drive, exchange_seconds
from weft.papers.ace.computing import LOOKUP_SLOWDOWN
from weft.papers.claims import StudyCase
from weft.training import AlphaBeta, Linear, policies, single_channel
from weft.training.cluster import Cluster
from weft.training.endpoints import COMPARED, ENDPOINTS
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.schedules import by_algorithm
from weft.training.task_graph import Graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.papers.ace.computing import Computing
    from weft.training.layers import Layer

NAMES: Final = COMPARED
BASELINES: Final = NAMES[:3]
_PART_BYTES: Final = 1 << 20
_ITERATIONS: Final = 3
_EXCHANGING_ITERATIONS: Final = 6
"""With exchanges, iterations take turns at being longer and shorter; these are averaged but for the first."""


@dataclass(frozen=True, slots=True)
class IterationCase(StudyCase):
    """One model on one size of platform.

    Parameters
    ----------
    computing, model, shape
        Which.
    seconds
        Of an iteration, by endpoint.
    computing_s
        Of these, what a rank computes.
    sending_s, exchanging_s
        What all its collectives take one after the other, and its all-to-alls of that.
    cpu_seconds
        What simulating every transfer cost, with all endpoints; 0 where all-reduces alone stand for them.
    """

    derived = ("best_baseline", "speedup", "ideal_speedup")

    computing: str
    model: str
    shape: str
    seconds: Mapping[str, float]
    computing_s: Mapping[str, float]
    sending_s: Mapping[str, float]
    exchanging_s: Mapping[str, float]
    cpu_seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is a point of."""
        return self.computing, self.model, self.shape

    @property
    def share(self) -> float:
        """Sending as a share of computing, where an endpoint costs nothing."""
        return self.sending_s["ideal"] / self.computing_s["ideal"]

    @property
    def bound(self) -> float:
        """What hiding all that is sent gains over sending it after computing, on the same device."""
        return self.seconds["no-overlap"] / self.computing_s["no-overlap"]

    @property
    def best_baseline(self) -> str:
        """The fastest of the baselines."""
        return min(BASELINES, key=lambda name: self.seconds[name])

    @property
    def speedup(self) -> float:
        """How many times as fast as the best baseline ACE is."""
        return self.seconds[self.best_baseline] / self.seconds["ace"]

    @property
    def ideal_speedup(self) -> float:
        """How many times as fast as the best baseline an endpoint is that costs nothing."""
        return self.seconds[self.best_baseline] / self.seconds["ideal"]


def rates(shape: str, size_bytes: int, names: Sequence[str] = NAMES) -> dict[str, float]:
    """GB/s of an all-reduce alone, by endpoint."""
    return {name: drive(shape, ENDPOINTS[name], size_bytes).payload_gbs for name in names}


def point(computing: Computing, model: str, shape: str, payload_gbs: Mapping[str, float]) -> IterationCase:
    """Iterations with the times of all-reduces alone; `payload_gbs` are those of `rates`.

    Where layers exchange something, every transfer is simulated: exchanges share links with all-reduces, but
    not the memory that bounds kernels.
    """
    seconds: dict[str, float] = {}
    busy, sending, exchanging = {}, {}, {}
    cost = 0.0
    for name in NAMES:
        layers, slowdowns = computing.layers(model, name)
        line = AlphaBeta(0.0, 1 / (payload_gbs[name] * GB))
        exchanges = [layer.exchange.size_bytes for layer in layers if layer.exchange]
        if exchanges:
            whole, spent = contended(computing, model, shape, [name])
            seconds |= whole
            cost += spent
        else:
            graph = _graph(computing, layers, name, _PART_BYTES)
            costs = Linear(line, line, line)
            seconds[name] = single_channel.run(graph, costs, slowdowns=slowdowns).seconds
        busy[name] = forward_seconds(layers) + backward_seconds(layers)
        exchanging[name] = 2 * sum(exchange_seconds(shape, ENDPOINTS[name], size) for size in exchanges)
        sending[name] = line(total_bytes(layers)) + exchanging[name]
    return IterationCase(computing.name, model, shape, seconds, busy, sending, exchanging, cost)


def contended(
    computing: Computing, model: str, shape: str, names: Sequence[str] = NAMES
) -> tuple[dict[str, float], float]:
    """Seconds of an iteration by endpoint with every transfer simulated, and CPU seconds of that."""
    topology = all_reduce(shape).topology
    seconds, cost = {}, 0.0
    for name in names:
        layers, slowdowns = computing.layers(model, name)
        graph = _until_last_start(_graph(computing, layers, name, 1 << 40))
        cluster = Cluster(topology, by_algorithm(topology, "four_phase"), ENDPOINTS[name])
        run = cluster.run(graph, slowdowns=slowdowns)
        starts = run.began_ps[graph.starts].max(axis=1)
        seconds[name] = float(starts[-1] - starts[1]) / units.PS_PER_S / (len(starts) - 2)
        cost += run.flow.cpu_seconds
    return seconds, cost


def _graph(computing: Computing, layers: Sequence[Layer], name: str, part_bytes: int) -> Graph:
    exchanging = any(layer.exchange for layer in layers)
    iterations = _EXCHANGING_ITERATIONS if exchanging else _ITERATIONS
    if not ENDPOINTS[name].overlaps:
        return policies.find("serial").build(layers, iterations=iterations)
    options: dict[str, Any] = {"partition_bytes": part_bytes}
    if computing.lookup_ahead:
        options |= {"lookup_ahead": True, "lookup_slowdown": LOOKUP_SLOWDOWN}
    return policies.find("gradient-first").build(layers, iterations=iterations, **options)


def _until_last_start(graph: Graph) -> Graph:
    """Leave out what the last iteration does: all ranks begin it together, and no more is asked of it."""
    found = Graph()
    found.starts = graph.starts
    found.tasks = graph.tasks[: graph.starts[-1] + 1]
    return found
