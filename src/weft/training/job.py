"""A simulated training job: a model, a cluster and a policy go in, the time of an iteration comes out.

This is what ``weft train`` computes; `train` is the same for Python. The layers come from a workload and a
device, the schedules from a plan, an algorithm or a quick choice, the policy by name or by
`weft.training.choice`. Every schedule is verified before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import limits, units
from weft.algorithms.registry import Algorithm
from weft.errors import InputError
from weft.notebook_display import ShortRepr, data_frame, html_card, short_line, short_name
from weft.planning import Plan
from weft.planning.quick import QuickChooser
from weft.schedule import Schedule
from weft.topology import load_topology
from weft.training.choice import AUTO, choose_policy
from weft.training.cluster import Cluster, Noise
from weft.training.costs import Bounded, Simulated
from weft.training.device_memory import advise_on_memory, count_memory, zero_stage
from weft.training.devices import default_device, find_device
from weft.training.endpoint_choice import by_endpoint
from weft.training.endpoint_cost import layers_under
from weft.training.endpoints import Endpoint, find_endpoint
from weft.training.layers import backward_seconds, forward_seconds, total_bytes
from weft.training.policies import LINES
from weft.training.schedules import by_algorithm, by_plan, verified
from weft.training.segment_budget import count_spans, fit_segments, fits
from weft.training.timeline_drawing import draw_timeline
from weft.training.timeline_trace import write_training_trace
from weft.training.trace_selection import select_trace
from weft.training.workloads import load_workload

if TYPE_CHECKING:
    from pathlib import Path

    from weft.topology import Topology
    from weft.training.cluster import ClusterRun
    from weft.training.device_memory import DeviceMemory
    from weft.training.devices import OperatorTimer
    from weft.training.layers import Layer
    from weft.training.policies import Policy
    from weft.training.schedules import Chooser
    from weft.training.task_graph import Graph
    from weft.training.workloads import Workload

_BUSIEST: Final = 5

MOST_ITERATIONS: Final = 16
"""A job that is not asked for a number simulates up to this many until their times repeat."""


@dataclass(frozen=True, slots=True, repr=False)
class TrainingJob(ShortRepr):
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
        Name of what computes, or a device of one's own; by default a preset's own, otherwise a V100.
    batch, dtype
        Samples of each rank, and the number format; by default the model's own and the device's usual one.
    policy
        When gradients are sent; ``"auto"`` chooses WFBP or DeAR and its fusion.
    fusion, options
        Bytes that are sent together, such as ``"25MiB"``, and further options of a policy given by name.
    endpoint
        Name of what communication costs a rank, or an endpoint of one's own.
    algorithm
        Of the collectives. ``"auto"`` takes the fastest of a few, or what the plan says. A name, the file of
        one's own function or schedule, or a `Schedule`, as for `weft.compare`; a function of one's own as
        `weft.algorithms.resolver.resolve_algorithm` gives it back. A plain function is asked for the schedule
        of each collective and size, and the bytes of a segment or None.
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
    device: str | OperatorTimer | None = None
    batch: int | None = None
    dtype: str | None = None
    policy: str = AUTO
    fusion: str | int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    endpoint: str | Endpoint = "free"
    algorithm: str | Schedule | Algorithm | Chooser = AUTO
    channels: int = 1
    overhead_s: float = 0.0
    iterations: int | None = None
    jitter: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def run(self, *, record: bool = False) -> TrainingResult:
        """Simulate the job; `record` keeps what every link and resource did, for a trace.

        Of a job with more than `weft.limits.MAX_RECORDED_SPANS` of these, a trace has the ranks alone.

        Raises
        ------
        InputError
            If something of it is unknown or does not go together; says what there is.
        VerificationError
            If a schedule of a plan or of a function does not compute its collective.
        """
        endpoint = find_endpoint(self.endpoint) if isinstance(self.endpoint, str) else self.endpoint
        network = self.topology if isinstance(self.topology, Plan) else load_topology(self.topology)
        topology = network.topology if isinstance(network, Plan) else network
        device = find_device(self.device) if isinstance(self.device, str) else self.device
        device = device or default_device(topology.name)
        workload = load_workload(self.model) if isinstance(self.model, str) else self.model
        layers, slowdowns = layers_under(workload, device, endpoint, self.batch, self.dtype)
        choose = (
            _schedules(network, self.algorithm, endpoint)
            if isinstance(self.algorithm, str | Schedule | Algorithm)
            else verified(self.algorithm)
        )
        costs = Simulated(choose)
        fusion = None if self.fusion is None else units.parse_size(self.fusion)
        policy, options, reason = choose_policy(self.policy, fusion, self.options, endpoint, layers, costs)
        noise = Noise(self.jitter, self.stragglers, self.seed)
        cluster = Cluster(topology, choose, endpoint, self.channels, self.overhead_s, noise)

        def build(iterations: int | None) -> Graph:
            return policy.build(layers, iterations=iterations, costs=costs, **options)

        fitted = fit_segments(cluster, build, self.iterations)
        cluster, graph = fitted.cluster, build(fitted.iterations)

        def simulate(graph: Graph) -> tuple[Graph, ClusterRun]:
            kept = record and count_spans(graph, cluster) <= limits.MAX_RECORDED_SPANS
            return graph, cluster.run(graph, record=kept, slowdowns=slowdowns)

        graph, run = simulate(graph)
        # With jitter no two iterations are alike, and more of them would not change that.
        while self.iterations is None and not (run.steady.settled or self.jitter):
            more = build(2 * run.iterations)
            if 2 * run.iterations > MOST_ITERATIONS or not fits(more, cluster):
                break
            graph, run = simulate(more)
        made = (graph, cluster, run, fitted.note, record)
        return TrainingResult(self, workload, device, layers, policy, options, reason, *made)


@dataclass(frozen=True, slots=True, repr=False)
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
    simplified
        What was made coarser to stay within the limits of the engine; empty if nothing was.
    recorded
        Whether the job ran with ``record=True``.
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
    simplified: str = ""
    recorded: bool = False

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
    def memory(self) -> DeviceMemory:
        """What each device keeps, and whether it has room for that."""
        return count_memory(*self._kept())

    @property
    def memory_advice(self) -> str:
        """What would fit where this job does not; empty where it does, or nobody knows."""
        return advise_on_memory(*self._kept())

    def _kept(self) -> tuple[Workload, OperatorTimer, int, str | None, int, int]:
        stage = zero_stage(self.policy, self.options)
        return self.workload, self.device, self.batch, self.job.dtype, self.cluster.topology.ranks, stage

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

    def save_trace(
        self,
        path: str | Path,
        *,
        ranks: str | Iterable[int] | None = None,
        links: str | Iterable[str | int] | None = None,
        iteration: int | None = None,
    ) -> str:
        """Write a trace for ui.perfetto.dev of a job that ran with ``record=True``.

        Parameters
        ----------
        path
            Of the file.
        ranks, links, iteration
            What to show, as for `select_trace`. By default the first eight ranks, all links and all
            iterations, and of these no more than viewers can open.

        Returns
        -------
        str
            What was left out because there is too much of it; empty if nothing was.

        Raises
        ------
        InputError
            If the job was not recorded, there is no such rank or link, or the file cannot be written.
        """
        if not self.recorded:
            raise InputError("nothing was recorded; run with record=True")
        selection = select_trace(self.cluster.topology, ranks, links, iteration)
        left_out = write_training_trace(self.graph, self.run, path, selection)
        if self.run.flow.spans is None:
            most = f"{limits.MAX_RECORDED_SPANS:,} spans"
            left_out = ", ".join(
                filter(None, (left_out, f"links and endpoints, which have more than {most}"))
            )
        return left_out

    def to_svg(self) -> str:
        """Draw the last iteration as rank 0 saw it: computing and network over time, as an SVG document."""
        return draw_timeline(self.run.timeline, self.layers, self._what())

    def to_pandas(self) -> Any:
        """The last iteration as rank 0 saw it, as a ``pandas.DataFrame``: a row for each span of time.

        `kind` is ``forward``, ``backward``, ``wait`` or a collective, `number` that of a layer or of a group
        of gradients, and `layer` the name of a layer that computes.
        """
        spans = self.run.timeline.spans
        computed = ("forward", "backward")
        names = [self.layers[span.number].name if span.kind in computed else None for span in spans]
        columns = (
            {field: [getattr(span, field) for span in spans] for field in spans[0]._fields} if spans else {}
        )
        return data_frame("TrainingResult.to_pandas", {**columns, "layer": names})

    def _what(self) -> str:
        return f"{self.workload.name} with {self.policy.name} on {self.cluster.topology.name}"

    @property
    def dtype(self) -> str:
        """The number format that is computed in."""
        return self.job.dtype or self.device.dtypes[0]

    def _repr_html_(self) -> str:
        rate = self.samples_per_s
        facts = [
            ("iteration", units.human_seconds(self.seconds)),
            ("computing", units.human_seconds(self.run.computing_s)),
            ("exposed", units.human_seconds(self.run.exposed_s)),
            (
                "samples",
                "-" if rate is None else f"{rate:,.1f} per second on {self.cluster.topology.ranks:,} ranks",
            ),
            ("device", f"{self.device.name}, {self.dtype}, batch {self.batch}"),
            *((name, ", ".join(found)) for name, found in self.algorithms().items()),
        ]
        facts += [(name, text) for name, text in (("why", self.reason), ("note", self.simplified)) if text]
        rows = [[one["link"], f"{100 * one['busy']:.1f} %"] for one in self.busiest_links()]
        title = self._what()
        columns = ("busiest link", "busy")
        return html_card(title, facts, columns=columns, rows=rows, drawing=self.to_svg())

    def __repr__(self) -> str:
        where = f"{short_name(self.workload.name)} on {short_name(self.cluster.topology.name)}"
        times = f"{units.human_seconds(self.seconds)}, {units.human_seconds(self.run.exposed_s)} exposed"
        return short_line(f"<TrainingResult {where}: {self.policy.name}, {times}>")

    def to_dict(self) -> dict[str, Any]:
        """Figures of the job, ready for JSON; ``lines`` are times that no policy of their kind can beat.

        They hold where ``bound_condition`` does, if it says anything.
        """
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
            "dtype": self.dtype,
            **{name: getattr(job, name) for name in ("channels", "overhead_s", "jitter", "seed")},
            "stragglers": dict(job.stragglers),
            "planned": self.planned,
            "algorithms": self.algorithms(),
            **{name: getattr(run, name) for name in ("iterations", "seconds", "computing_s", "exposed_s")},
            "simplified": self.simplified,
            "memory": self.memory.to_dict() | {"advice": self.memory_advice},
            "steady_s": list(run.steady.intervals_s),
            "settled": run.steady.settled,
            "samples_per_s": self.samples_per_s,
            "forward_s": forward_seconds(layers),
            "backward_s": backward_seconds(layers),
            "communication_s": run.timeline.communication_s,
            "lines": {name: line.seconds(layers, bounds) for name, line in LINES.items()},
            "bound_condition": bounds.condition(total_bytes(layers)),
            "resource_use": run.resource_use(),
            "busiest_links": self.busiest_links(),
            **{name: getattr(run.flow, name) for name in ("segments", "events")},
            "simulation_seconds": run.flow.cpu_seconds,
        }


def train(
    model: str | Workload,
    topology: str | Path | Topology | Plan,
    *,
    device: str | OperatorTimer | None = None,
    batch: int | None = None,
    dtype: str | None = None,
    policy: str = AUTO,
    fusion: str | int | None = None,
    options: Mapping[str, Any] | None = None,
    endpoint: str | Endpoint = "free",
    algorithm: str | Schedule | Algorithm | Chooser = AUTO,
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
def _schedules(
    network: Topology | Plan, algorithm: str | Schedule | Algorithm, endpoint: Endpoint
) -> Chooser:
    """Give verified schedules of an algorithm; the jobs of a sweep that share a network share them."""
    topology = network.topology if isinstance(network, Plan) else network
    if algorithm != AUTO:
        return verified(by_algorithm(topology, algorithm))
    whole = endpoint.chunk_bytes is None and endpoint.read_bandwidth is None
    quick = QuickChooser(topology) if whole else by_endpoint(topology, endpoint)
    return verified(by_plan(network, quick) if isinstance(network, Plan) else quick)
