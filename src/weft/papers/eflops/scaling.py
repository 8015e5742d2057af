"""ResNet-50 on more and more GPUs: EFLOPS, and what it replaces, in steps from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from weft.algorithms import hdrm
from weft.papers.claims import StudyCase, against_channel
from weft.papers.eflops.all_reduces import ALGORITHMS, FARTHEST, NEAREST, RING
from weft.topology.servers import Fabric, Server, connect
from weft.training import Simulated, find_device, load_workload, policies, train
from weft.training.schedules import by_schedule
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology
    from weft.training import Layer

GPUS: Final = 8
"""Of a server."""

PORTS: Final = 4
"""Servers on a leaf where each has one NIC."""

MODEL: Final = "resnet50"
BATCH: Final = 64
DEVICE: Final = "v100"
DTYPES: Final = ("fp32", "fp16")
ITERATIONS: Final = 3
POLICIES: Final = ("wfbp", "ddp")
WORKERS: Final = (8, 16, 32, 64, 128, 256, 512)

EFLOPS: Final = "EFLOPS"
OWN: Final = "own NICs, HD farthest"
SHARED_FAR: Final = "shared NIC, HD farthest"
SHARED_NEAR: Final = "shared NIC, HD nearest"
SHARED_RING: Final = "shared NIC, ring"
SETUPS: Final = (EFLOPS, OWN, SHARED_NEAR, SHARED_FAR, SHARED_RING)
"""All but EFLOPS on a Clos that hashes and is not oversubscribed."""

_PLAIN: Final = {OWN: FARTHEST, SHARED_FAR: FARTHEST, SHARED_NEAR: NEAREST, SHARED_RING: RING}

_LEAVES: Final = {16: 8, 32: 8, 64: 16, 128: 16, 256: 32, 512: 32}
"""Switches of the BiGraph, and leaves of the Clos: as few as HDRM allows for."""


@dataclass(frozen=True, slots=True)
class Scaled(StudyCase):
    """One set-up at one size of cluster.

    Parameters
    ----------
    setup, workers, dtype, policy
        Which.
    computing_s
        Seconds that an iteration computes.
    seconds
        Of an iteration, for each seed of the hash; one where nothing is hashed.
    """

    derived = ("efficiency", "worst")

    setup: str
    workers: int
    dtype: str
    policy: str
    computing_s: float
    seconds: tuple[float, ...]

    @property
    def efficiency(self) -> float:
        """Share of a GPU alone that each GPU does, by the mean over seeds."""
        return self.computing_s / fmean(self.seconds)

    @property
    def worst(self) -> float:
        """The same with the worst seed."""
        return self.computing_s / max(self.seconds)


def cluster(setup: str, workers: int, seed: int) -> Topology:
    """Servers of eight GPUs on what a set-up puts them on; few of them on one switch.

    Examples
    --------
    >>> cluster("EFLOPS", 64, 0).ranks
    64
    """
    count = workers // GPUS
    own = setup in (EFLOPS, OWN)
    server = Server(GPUS, GPUS if own else 1)
    if count == 1:
        fabric = Fabric()
    elif own:
        fabric = Fabric("bigraph" if setup == EFLOPS else "clos", leaves=_LEAVES[workers])
    else:
        fabric = Fabric("clos", leaves=count // PORTS) if count > PORTS else Fabric()
    topology = connect(f"{setup}: {workers} GPUs", count, server, fabric)
    return topology.with_routing("ecmp", seed) if fabric.kind == "clos" else topology


def all_reduce(setup: str, topology: Topology) -> Schedule:
    """The all-reduce of a set-up; EFLOPS's in a single server, which has no BiGraph, is halving-doubling."""
    if setup == EFLOPS and topology.ranks in _LEAVES:
        return hdrm.all_reduce(topology)
    return ALGORITHMS[_PLAIN.get(setup, FARTHEST)](topology)


def layers_of(dtype: str) -> tuple[Layer, ...]:
    """ResNet-50 as it is computed here."""
    return load_workload(MODEL).layers(find_device(DEVICE), batch=BATCH, dtype=dtype)


def scale(workers: Sequence[int], seeds: Sequence[int], report: Callable[[str], None]) -> Iterator[Scaled]:
    """Give every set-up at every size.

    Parameters
    ----------
    workers
        How many GPUs: 8, 16, ... 512.
    seeds
        Of the hash.
    report
        Called before each number of GPUs.
    """
    layers = {dtype: layers_of(dtype) for dtype in DTYPES}
    for many in workers:
        report(f"ResNet-50 on {many} GPUs")
        for setup in SETUPS:
            made = [cluster(setup, many, seed) for seed in seeds]
            hashed = made[0].routing.kind == "ecmp"
            costs = [
                Simulated(by_schedule(all_reduce(setup, topology)))
                for topology in (made if hashed else made[:1])
            ]
            for dtype in DTYPES:
                computing = sum(layer.forward_s + layer.backward_s for layer in layers[dtype])
                for policy in POLICIES:
                    graph = policies.find(policy).build(layers[dtype], costs=costs[0], iterations=ITERATIONS)
                    seconds = tuple(run(graph, one).seconds for one in costs)
                    yield Scaled(setup, many, dtype, policy, computing, seconds)


def check(setup: str, workers: int, policy: str, dtype: str) -> dict[str, Any]:
    """Hold one channel with the times of all-reduces alone against every rank and link simulated together."""
    topology = cluster(setup, workers, 0)
    schedule = all_reduce(setup, topology)
    whole = train(
        MODEL,
        topology,
        device=DEVICE,
        batch=BATCH,
        dtype=dtype,
        policy=policy,
        algorithm=by_schedule(schedule),
        iterations=ITERATIONS,
    )
    case = {"setup": setup, "workers": workers, "policy": policy, "dtype": dtype}
    return case | against_channel(whole, Simulated(by_schedule(schedule)))
