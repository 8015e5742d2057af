"""Where DeAR was tried: five models, 16 hosts of four GPUs, two networks; and what is assumed about them.

The paper's abstract names the networks and the number of GPUs; models, batches and hosts are from the
authors' code. Speeds and latencies of the networks are given by neither. They come from data sheets and from
NCCL's own table of latencies, and where there is no source they are called assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.topology import load_topology
from weft.training import AlphaBeta, Linear, Simulated
from weft.training.devices import find_device
from weft.training.workloads import load_workload

if TYPE_CHECKING:
    from weft.topology import Topology
    from weft.training import Costs, Layer

MODELS: Final = ("resnet50", "densenet201", "inception-v4", "bert-base", "bert-large")
DEVICE: Final = "rtx2080ti"
HOSTS: Final = 16
GPUS: Final = 4
WORKERS: Final = HOSTS * GPUS
ALGORITHM: Final = "ring"

PCIE: Final = "12GB/s"
PCIE_LATENCY: Final = "2850ns"
"""Half of the 5.7 us from GPU to GPU: a message crosses two links inside a host."""


@dataclass(frozen=True, slots=True)
class TestbedNetwork:
    """What joins the hosts.

    Parameters
    ----------
    name, title
        Short, and for people.
    uplink, latency
        Of the cable from each host to the switch.
    claimed, claim_id
        The abstract's "up to", in percent, and the identifier of that claim.
    """

    name: str
    title: str
    uplink: str
    latency: str
    claimed: float
    claim_id: str

    def topology(self, hosts: int = HOSTS) -> Topology:
        """So many hosts of four GPUs on it.

        Examples
        --------
        >>> NETWORKS[0].topology(2).ranks
        8
        """
        sizes = ",".join([str(GPUS)] * hosts)
        options = f"intra={PCIE},intra_lat={PCIE_LATENCY},uplink={self.uplink},lat={self.latency}"
        return load_topology(f"hosts:{sizes}@{options}")

    def costs(self, hosts: int = HOSTS) -> Simulated:
        """Simulated rings over them."""
        return Simulated.on(self.topology(hosts), ALGORITHM)


NETWORKS: Final = (
    TestbedNetwork("10GbE", "10 Gb/s Ethernet", "1.25GB/s", "12500ns", 83.0, "dear-ethernet"),
    TestbedNetwork("100GbIB", "100 Gb/s InfiniBand", "12.5GB/s", "1950ns", 15.0, "dear-infiniband"),
)

KINDS: Final = ("simulated", "authors")
"""Sets of costs: rings that are simulated, and lines of the authors' code."""

_AUTHORS: Final = {"10GbE": AlphaBeta(7.04e-3, 9.64e-10), "100GbIB": AlphaBeta(8.06e-4, 5.89e-10)}


def authors_lines(network: TestbedNetwork) -> Linear:
    """Lines of the authors' code for 64 workers, of which an all-reduce's halves take half each.

    Examples
    --------
    >>> authors_lines(NETWORKS[0]).all_reduce(10_000_000)
    0.01668
    """
    whole = _AUTHORS[network.name]
    half = AlphaBeta(whole.alpha_s / 2, whole.beta_s_per_byte / 2)
    return Linear(half, half, whole)


@dataclass(frozen=True, slots=True)
class Setting:
    """Costs of collectives with a name: ``simulated``, or ``authors`` for the lines of their code."""

    network: TestbedNetwork
    kind: str
    costs: Costs

    @classmethod
    def of(cls, network: TestbedNetwork, kind: str) -> Setting:
        """Make the costs of one of `KINDS`."""
        return cls(network, kind, network.costs() if kind == "simulated" else authors_lines(network))

    @property
    def name(self) -> str:
        """For keys of the data."""
        return f"{self.network.name}, {self.kind}"


def layers_of(model: str) -> tuple[Layer, ...]:
    """Layers of a model with the batch of the authors' code, in fp32."""
    return load_workload(model).layers(find_device(DEVICE), dtype="fp32")
