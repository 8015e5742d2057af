"""One simulated training job, from plain values to plain values: what a sweep hands to its workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from weft.cli.train_policy import AUTO, Wish, choose_policy
from weft.errors import InputError, WeftError

if TYPE_CHECKING:
    from weft.planning import Plan
    from weft.schedule import Schedule
    from weft.topology import Topology
    from weft.training import Layer
    from weft.training.cluster import Cluster, ClusterRun
    from weft.training.devices import OperatorTimer
    from weft.training.endpoints import Endpoint
    from weft.training.policies import Policy
    from weft.training.schedules import Chooser
    from weft.training.task_graph import Graph
    from weft.training.workloads import Workload

_BUSIEST: Final = 5


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job; the fields are the options of ``weft train``."""

    topology: str
    model: str
    device: str
    batch: int | None = None
    dtype: str | None = None
    policy: str = AUTO
    fusion: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    endpoint: str = "free"
    algorithm: str = AUTO
    channels: int = 1
    overhead_s: float = 0.0
    iterations: int | None = None
    jitter: float = 0.0
    stragglers: tuple[tuple[int, float], ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What came of a job, with all that led there; `planned` is the collective that a plan file brought."""

    point: TrainingJob
    workload: Workload
    machine: OperatorTimer
    endpoint: Endpoint
    layers: tuple[Layer, ...]
    batch: int
    policy: Policy
    options: dict[str, Any]
    reason: str
    lines: dict[str, float]
    graph: Graph
    cluster: Cluster
    run: ClusterRun
    planned: str | None


def run_point(point: TrainingJob, *, record: bool = False) -> TrainingOutcome:
    """Simulate a job.

    Raises
    ------
    InputError
        If something of it is unknown or cannot be; says what there is.
    """
    from weft.training import policies
    from weft.training.cluster import Cluster, Noise
    from weft.training.costs import Bounded, Simulated
    from weft.training.devices import find_device
    from weft.training.endpoints import find_endpoint

    if point.policy != AUTO:
        policies.find(point.policy)
    endpoint, machine = find_endpoint(point.endpoint), find_device(point.device)
    workload = _load_model(point.model)
    batch = point.batch if point.batch is not None else workload.batch
    layers = workload.layers(_what_is_left(endpoint, machine), batch, point.dtype)
    topology, choose, planned = _network(point.topology, point.algorithm)
    costs = Simulated(choose)
    wish = Wish(point.policy, point.fusion, point.options)
    policy, options, reason = choose_policy(wish, endpoint, layers, costs)
    graph = policy.build(layers, iterations=point.iterations, costs=costs, **options)
    noise = Noise(point.jitter, dict(point.stragglers), point.seed)
    cluster = Cluster(topology, choose, endpoint, point.channels, point.overhead_s, noise)
    run = cluster.run(graph, record=record)
    bounds = Bounded(topology)
    lines = {name: line.seconds(layers, bounds) for name, line in policies.LINES.items()}
    return TrainingOutcome(
        point=point,
        workload=workload,
        machine=machine,
        endpoint=endpoint,
        layers=layers,
        batch=batch,
        policy=policy,
        options=options,
        reason=reason,
        lines=lines,
        graph=graph,
        cluster=cluster,
        run=run,
        planned=planned,
    )


def measure(point: TrainingJob) -> dict[str, Any]:
    """Simulate a job and give its figures: what a worker of a sweep does.

    Raises
    ------
    InputError
        If it cannot be. A user's script may raise what no other process can read, so only text goes back.
    """
    try:
        return as_dict(run_point(point))
    except WeftError:
        raise
    except BaseException as error:  # noqa: BLE001
        msg = f"{type(error).__name__}: {error}; run it by itself to see more"
        raise InputError(msg) from None


def as_dict(outcome: TrainingOutcome) -> dict[str, Any]:
    """Figures of a job, ready for JSON."""
    from weft.training.layers import backward_seconds, forward_seconds, total_bytes

    run, topology, layers = outcome.run, outcome.cluster.topology, outcome.layers
    return {
        "topology": topology.name,
        "ranks": topology.ranks,
        "model": outcome.workload.name,
        "device": outcome.machine.name,
        "batch": outcome.batch,
        "parameter_bytes": total_bytes(layers),
        "layers": len(layers),
        "policy": outcome.policy.name,
        "options": outcome.options,
        "reason": outcome.reason,
        "endpoint": outcome.endpoint.name,
        "dtype": outcome.point.dtype or outcome.machine.dtypes[0],
        "channels": outcome.point.channels,
        "overhead_s": outcome.point.overhead_s,
        "jitter": outcome.point.jitter,
        "stragglers": dict(outcome.point.stragglers),
        "seed": outcome.point.seed,
        "planned": outcome.planned,
        "algorithms": _algorithms(outcome),
        "iterations": run.iterations,
        "seconds": run.seconds,
        "samples_per_s": topology.ranks * outcome.batch / run.seconds if run.seconds else None,
        "forward_s": forward_seconds(layers),
        "backward_s": backward_seconds(layers),
        "computing_s": run.computing_s,
        "exposed_s": run.exposed_s,
        "communication_s": run.timeline.communication_s,
        "lines": outcome.lines,
        "resource_use": run.resource_use(),
        "busiest_links": busiest_links(outcome),
        "segments": run.flow.segments,
        "events": run.flow.events,
        "simulation_seconds": run.flow.cpu_seconds,
    }


def busiest_links(outcome: TrainingOutcome) -> list[dict[str, Any]]:
    """Links that are busy the largest share of the time."""
    import numpy as np

    use, topology = outcome.run.link_use, outcome.cluster.topology
    return [
        {"link": topology.link_name(link), "busy": float(use[link])}
        for link in np.argsort(-use, kind="stable")[:_BUSIEST].tolist()
    ]


def _algorithms(outcome: TrainingOutcome) -> dict[str, list[str]]:
    """Which algorithms carried out which collectives."""
    found: dict[str, list[str]] = {}
    for task in outcome.graph.tasks:
        if task.collective and task.size_bytes:
            size = min(task.size_bytes, outcome.endpoint.chunk_bytes or task.size_bytes)
            name = outcome.cluster.choose(task.collective, size)[0].algorithm
            names = found.setdefault(task.collective, [])
            if name not in names:
                names.append(name)
    return found


def _load_model(model: str) -> Workload:
    from weft.training.workloads import load_workload

    if ":" in model:
        from weft.torch.tracing import trace

        return trace(model)
    return load_workload(model)


def _what_is_left(endpoint: Endpoint, machine: OperatorTimer) -> OperatorTimer:
    from weft.training.devices import Device

    if endpoint.memory_bandwidth is None or not endpoint.overlaps:
        return machine
    if not isinstance(machine, Device):
        msg = f"endpoint {endpoint.name} takes memory bandwidth, which {machine.name} does not model"
        raise InputError(f"{msg}; use free, ideal or no-overlap")
    return endpoint.leaves(machine)


@lru_cache(maxsize=4)
def _network(source: str, algorithm: str) -> tuple[Topology, Chooser, str | None]:
    """A topology and who chooses schedules on it; a worker keeps them for its next job."""
    from weft.cli.inputs import obtain_network
    from weft.planning.quick import QuickChooser
    from weft.topology import Topology
    from weft.training.schedules import by_algorithm

    found = obtain_network(source)
    topology = found if isinstance(found, Topology) else found.topology
    if algorithm != AUTO:
        return topology, by_algorithm(topology, algorithm), None
    quick = QuickChooser(topology)
    if isinstance(found, Topology):
        return topology, quick, None
    return topology, _from_plan(found, quick), found.collective


def _from_plan(plan: Plan, otherwise: Chooser) -> Chooser:
    """What a plan says of its collective; for others, and for all-reduces in halves, a quick choice."""

    def choose(collective: str, size_bytes: int) -> tuple[Schedule, int | None]:
        if collective != plan.collective:
            return otherwise(collective, size_bytes)
        choice = plan.choose(size_bytes)
        return choice.schedule, choice.segment_bytes

    return choose
