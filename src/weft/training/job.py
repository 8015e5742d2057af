"""A simulated training job: a model, a cluster and a policy go in, the time of an iteration comes out.

This is what ``weft train`` computes; `train` is the same for Python. The layers come from a workload and a
device, the schedules from a plan, an algorithm or a quick choice, the policy by name or by
`weft.training.choice`. Every schedule is verified before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.planning import Plan
from weft.planning.quick import QuickChooser
from weft.topology import load_topology
from weft.training.choice import AUTO, choose_policy
from weft.training.cluster import Cluster, Noise
from weft.training.costs import Bounded, Simulated
from weft.training.devices import find_device
from weft.training.endpoint_cost import layers_under
from weft.training.endpoints import Endpoint, find_endpoint
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.policies import LINES
from weft.training.schedules import by_algorithm, by_plan, verified
from weft.training.timeline_trace import write_training_trace
from weft.training.workloads import load_workload

if TYPE_CHECKING:
    from pathlib import Path

    from weft.topology import Topology
    from weft.training.cluster import ClusterRun
    from weft.training.devices import OperatorTimer
    from weft.training.layers import Layer
    from weft.training.policies import Policy
    from weft.training.schedules import Chooser
    from weft.training.task_graph import Graph
    from weft.training.workloads import Workload

_BUSIEST: Final = 5

MOST_ITERATIONS: Final = 16
"""A job that is not asked for a number simulates up to this many until their times repeat."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A job to simulate.

    Every rank computes the layers of the model on its device and sends its gradients by the policy, over the
    network, through its endpoint, all at once.

    Parameters
    ----------
    model
        Name of a workload, or a workload; `weft.torch.tracing.trace` makes one of a torch module.
    topology
        Whatever `weft.load_topology` takes, or a plan, which brings its schedules.
    device
        Name of what computes, or a device of one's own.
    batch, dtype
        Samples of each rank, and the number format; by default the model's own and the device's usual one.
    policy
        When gradients are sent; ``"auto"`` chooses WFBP or DeAR and its fusion.
    fusion, options
        Bytes that are sent together, such as ``"25MiB"``, and further options of a policy given by name.
    endpoint
        Name of what communication costs a rank, or an endpoint of one's own.
    algorithm
        Of the collectives. ``"auto"`` takes the fastest of a few, or what the plan says; a function is asked
        for the schedule of each collective and size, and the bytes of a segment or None.
    channels, overhead_s
        Collectives under way at a time, and seconds that each takes before it sends.
    iterations
        How many are simulated, at least 2; by default as many as the policy needs, and up to
        `MOST_ITERATIONS` where times do not repeat before. The time of an iteration is the mean over the
        period with which they repeat, or over the later half if they never do.
    jitter, stragglers, seed
        How ranks differ in what they compute, as in `Noise`.
    """

    model: str | Workload
    topology: str | Path | Topology | Plan
    device: str | OperatorTimer = "v100"
    batch: int | None = None
    dtype: str | None = None
    policy: str = AUTO
    fusion: str | int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | Endpoint = "free"
    algorithm: str | Chooser = AUTO
    channels: int = 1
    overhead_s: float = 0.0
    iterations: int | None = None
    jitter: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def run(self, *, record: bool = False) -> TrainingResult:
        """Simulate the job; `record` keeps what every link and resource did, for a trace.

        Raises
        ------
        InputError
            If something of it is unknown or does not go together; says what there is.
        VerificationError
            If a schedule of a plan or of a function does not compute its collective.
        """
        endpoint = find_endpoint(self.endpoint) if isinstance(self.endpoint, str) else self.endpoint
        device = find_device(self.device) if isinstance(self.device, str) else self.device
        workload = load_workload(self.model) if isinstance(self.model, str) else self.model
        layers, slowdowns = layers_under(workload, device, endpoint, self.batch, self.dtype)
        network = self.topology if isinstance(self.topology, Plan) else load_topology(self.topology)
        topology = network.topology if isinstance(network, Plan) else network
        choose = (
            _schedules(network, self.algorithm)
            if isinstance(self.algorithm, str)
            else verified(self.algorithm)
        )
        costs = Simulated(choose)
        fusion = None if self.fusion is None else units.parse_size(self.fusion)
        policy, options, reason = choose_policy(self.policy, fusion, self.options, endpoint, layers, costs)
        noise = Noise(self.jitter, self.stragglers, self.seed)
        cluster = Cluster(topology, choose, endpoint, self.channels, self.overhead_s, noise)

        def simulate(iterations: int | None) -> tuple[Graph, ClusterRun]:
            graph = policy.build(layers, iterations=iterations, costs=costs, **options)
            return graph, cluster.run(graph, record=record, slowdowns=slowdowns)

        graph, run = simulate(self.iterations)
        # With jitter no two iterations are alike, and more of them would not change that.
        while self.iterations is None and not (run.steady.settled or self.jitter):
            if 2 * run.iterations > MOST_ITERATIONS:
                break
            graph, run = simulate(2 * run.iterations)
        return TrainingResult(self, workload, device, layers, policy, options, reason, graph, cluster, run)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The outcome of a job.

    Parameters
    ----------
    job
        What was simulated.
    workload, device, layers
        The model, what computes it, and its layers with their times.
    policy, options, reason
        The policy that ran, its options, and why it was chosen or what speaks against it.
    graph, cluster, run
        The tasks of every rank, where they ran, and when.
    """

    job: TrainingJob
    workload: Workload
    device: OperatorTimer
    layers: tuple[Layer, ...]
    policy: Policy
    options: Mapping[str, Any]
    reason: str
    graph: Graph
    cluster: Cluster
    run: ClusterRun

    @property
    def seconds(self) -> float:
        """Seconds of an iteration in the steady state."""
        return self.run.seconds

    @property
    def batch(self) -> int:
        """Samples of each rank and iteration."""
        return self.workload.batch if self.job.batch is None else self.job.batch

    @property
    def samples_per_s(self) -> float | None:
        """Samples that all ranks train on in a second; None if an iteration takes no time."""
        return self.cluster.topology.ranks * self.batch / self.seconds if self.seconds else None

    @property
    def planned(self) -> str | None:
        """The collective whose schedules came from a plan; None without a plan."""
        plan = self.job.topology
        return plan.collective if isinstance(plan, Plan) and self.job.algorithm == AUTO else None

    def algorithms(self) -> dict[str, list[str]]:
        """Names of the algorithms that carried out each collective."""
        found: dict[str, dict[str, None]] = {}
        for task in self.graph.tasks:
            if task.collective and task.size_bytes:
                size = min(task.size_bytes, self.cluster.endpoint.chunk_bytes or task.size_bytes)
                schedule, _ = self.cluster.choose(task.collective, size)
                found.setdefault(task.collective, {})[schedule.algorithm] = None
        return {collective: list(names) for collective, names in found.items()}

    def busiest_links(self) -> list[dict[str, Any]]:
        """The links that are busy the largest share of the time, with that share."""
        use, topology = self.run.link_use, self.cluster.topology
        return [
            {"link": topology.link_name(link), "busy": float(use[link])}
            for link in np.argsort(-use, kind="stable")[:_BUSIEST].tolist()
        ]

    def save_trace(self, path: str | Path) -> None:
        """Write a trace for ui.perfetto.dev of a job that ran with ``record=True``."""
        write_training_trace(self.graph, self.run, path)

    def to_dict(self) -> dict[str, Any]:
        """Figures of the job, ready for JSON; ``lines`` are times that no policy of their kind can beat."""
        job, run, topology, layers = self.job, self.run, self.cluster.topology, self.layers
        bounds = Bounded(topology)
        return {
            "topology": topology.name,
            "ranks": topology.ranks,
            "model": self.workload.name,
            "device": self.device.name,
            "batch": self.batch,
            "parameter_bytes": total_bytes(layers),
            "layers": len(layers),
            "policy": self.policy.name,
            "options": dict(self.options),
            "reason": self.reason,
            "endpoint": self.cluster.endpoint.name,
            "dtype": job.dtype or self.device.dtypes[0],
            **{name: getattr(job, name) for name in ("channels", "overhead_s", "jitter", "seed")},
            "stragglers": dict(job.stragglers),
            "planned": self.planned,
            "algorithms": self.algorithms(),
            **{name: getattr(run, name) for name in ("iterations", "seconds", "computing_s", "exposed_s")},
            "steady_s": list(run.steady.intervals_s),
            "settled": run.steady.settled,
            "samples_per_s": self.samples_per_s,
            "forward_s": forward_seconds(layers),
            "backward_s": backward_seconds(layers),
            "communication_s": run.timeline.communication_s,
            "lines": {name: line.seconds(layers, bounds) for name, line in LINES.items()},
            "resource_use": run.resource_use(),
            "busiest_links": self.busiest_links(),
            **{name: getattr(run.flow, name) for name in ("segments", "events")},
            "simulation_seconds": run.flow.cpu_seconds,
        }


def train(
    model: str | Workload,
    topology: str | Path | Topology | Plan,
    *,
    device: str | OperatorTimer = "v100",
    batch: int | None = None,
    dtype: str | None = None,
    policy: str = AUTO,
    fusion: str | int | None = None,
    options: Mapping[str, Any] | None = None,
    endpoint: str | Endpoint = "free",
    algorithm: str | Chooser = AUTO,
    channels: int = 1,
    overhead_s: float = 0.0,
    iterations: int | None = None,
    jitter: float = 0.0,
    stragglers: Mapping[int, float] | None = None,
    seed: int = 0,
    record: bool = False,
) -> TrainingResult:
    """Simulate an iteration of training on a cluster, as ``weft train`` does.

    The arguments are the fields of `TrainingJob`, which says what they mean; with `record` the result can
    write a trace. Errors are those of `TrainingJob.run`.

    Examples
    --------
    >>> found = train("resnet50", "switch:4@bw=600MB/s,lat=25us")
    >>> found.policy.name, found.algorithms()
    ('dear', {'reduce_scatter': ['ring'], 'all_gather': ['ring']})
    >>> found.seconds < train("resnet50", "switch:4@bw=600MB/s,lat=25us", policy="ddp").seconds
    True
    """
    job = TrainingJob(
        model,
        topology,
        device,
        batch,
        dtype,
        policy,
        fusion,
        options or {},
        endpoint,
        algorithm,
        channels,
        overhead_s,
        iterations,
        jitter,
        stragglers or {},
        seed,
    )
    return job.run(record=record)


@lru_cache(maxsize=4)
def _schedules(network: Topology | Plan, algorithm: str) -> Chooser:
    """Give verified schedules by name; the jobs of a sweep that share a network share them."""
    topology = network.topology if isinstance(network, Plan) else network
    if algorithm != AUTO:
        return verified(by_algorithm(topology, algorithm))
    quick = QuickChooser(topology)
    return verified(by_plan(network, quick) if isinstance(network, Plan) else quick)
