"""Iterations of ACE's three models with its five endpoints, on its four sizes of platform.

Every layer's gradients are sent when they are there, those of the first layers first, and the next forward
pass waits for each layer's own. The times of collectives are those that the engine of the workflow measures
alone (`weft.papers.ace.bandwidth`); the whole platform at once, with everything contending, is simulated for
the smaller models to see what that leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from weft.papers.ace.bandwidth import GB, all_reduce, drive, exchange_seconds
from weft.papers.claims import StudyCase
from weft.training import AlphaBeta, Linear, policies, single_channel
from weft.training.cluster import Cluster
from weft.training.devices import Device, find_device
from weft.training.endpoints import ENDPOINTS
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.schedules import by_algorithm
from weft.training.task_graph import Graph
from weft.training.workloads import load_workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.training.layers import Layer

BASELINES: Final = ("no-overlap", "comm-opt", "comp-opt")
NAMES: Final = (*BASELINES, "ace", "ideal")
BATCHES: Final = {"resnet50": 32, "gnmt": 128, "dlrm": 512}
_PART_BYTES: Final = 1 << 20
_UNLIMITED: Final = 1e30


def devices() -> dict[str, Device]:
    """Both ways to compute: the roofline with what kernels reach, and nothing but the peak."""
    npu = find_device("ace-npu")
    assert isinstance(npu, Device)
    peak = replace(
        npu,
        memory_bytes_per_s=_UNLIMITED,
        core_efficiency=1.0,
        tensor_efficiency=1.0,
        memory_efficiency=1.0,
        launch_s=0.0,
    )
    return {"roofline": npu, "peak": peak}


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
    """

    derived = ("best_baseline", "speedup", "ideal_speedup")

    computing: str
    model: str
    shape: str
    seconds: Mapping[str, float]
    computing_s: Mapping[str, float]
    sending_s: Mapping[str, float]
    exchanging_s: Mapping[str, float]

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


def layers_of(model: str, name: str, device: Device) -> tuple[Layer, ...]:
    """Layers of a model on what an endpoint leaves of a device."""
    return load_workload(model).layers(ENDPOINTS[name].leaves(device), BATCHES[model], "fp16")


def rates(shape: str, size_bytes: int, names: Sequence[str] = NAMES) -> dict[str, float]:
    """GB/s of an all-reduce alone, by endpoint."""
    return {name: drive(shape, ENDPOINTS[name], size_bytes).payload_gbs for name in names}


def point(computing: str, model: str, shape: str, payload_gbs: Mapping[str, float]) -> IterationCase:
    """Iterations with the times of all-reduces alone; `payload_gbs` are those of `rates`.

    Where layers exchange something, every transfer is simulated: exchanges share links with all-reduces, but
    not the memory that bounds kernels.
    """
    seconds: dict[str, float] = {}
    busy, sending, exchanging = {}, {}, {}
    for name in NAMES:
        layers = layers_of(model, name, devices()[computing])
        line = AlphaBeta(0.0, 1 / (payload_gbs[name] * GB))
        exchanges = [layer.exchange.size_bytes for layer in layers if layer.exchange]
        if exchanges:
            seconds |= contended(computing, model, shape, [name])[0]
        else:
            graph = _graph(layers, name, _PART_BYTES)
            seconds[name] = single_channel.run(graph, Linear(line, line, line)).seconds
        busy[name] = forward_seconds(layers) + backward_seconds(layers)
        exchanging[name] = 2 * sum(exchange_seconds(shape, ENDPOINTS[name], size) for size in exchanges)
        sending[name] = line(total_bytes(layers)) + exchanging[name]
    return IterationCase(computing, model, shape, seconds, busy, sending, exchanging)


def contended(
    computing: str, model: str, shape: str, names: Sequence[str] = NAMES
) -> tuple[dict[str, float], float]:
    """Seconds of an iteration by endpoint with every transfer simulated, and CPU seconds of that."""
    topology = all_reduce(shape).topology
    seconds, cost = {}, 0.0
    for name in names:
        layers = layers_of(model, name, devices()[computing])
        graph = _until_last_start(_graph(layers, name, 1 << 40))
        run = Cluster(topology, by_algorithm(topology, "four_phase"), ENDPOINTS[name]).run(graph)
        seconds[name] = run.seconds
        cost += run.flow.cpu_seconds
    return seconds, cost


def _graph(layers: Sequence[Layer], name: str, part_bytes: int) -> Graph:
    if ENDPOINTS[name].overlaps:
        return policies.find("bytescheduler").build(layers, iterations=3, partition_bytes=part_bytes)
    return policies.find("serial").build(layers, iterations=3)


def _until_last_start(graph: Graph) -> Graph:
    """Leave out what the last iteration does: all ranks begin it together, and no more is asked of it."""
    found = Graph()
    found.starts = graph.starts
    found.tasks = graph.tasks[: graph.starts[-1] + 1]
    return found
