"""Boxes full of GPUs with everything inside that a transfer crosses: NVSwitch, PCIe switches, CPUs, NICs.

Ranks are the GPUs, box by box. Each other part is a switch with a name: ``host3.nvswitch``, ``host3.pcie2``,
``host3.nic5``, ``host3.cpu0``. A GPU reaches the network through the PCIe switch that it shares with a NIC.
When that NIC is dead, the shortest way that is left is the one that hardware takes:

- through another NIC on the same PCIe switch, if there is one;
- where NVLink or xGMI joins the GPUs: over it to another GPU, and through that one's NIC. NCCL calls it PXN;
- in a box without either: through the CPUs to another PCIe switch.

CPUs are drawn only in boxes of the last sort. Where NVLink leads, no GPU sends through a CPU, and counting
those wires would promise a speed that nobody gets (`weft.topology.gpu_machine` has the same rule).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

from weft.errors import TopologyError, check_choice
from weft.topology import rated_links
from weft.topology.gpu_machine import NVLINK_LATENCY_PS, PCIE_LATENCY_PS

if TYPE_CHECKING:
    from weft.topology.cable_notes import CableNotes
    from weft.topology.rated_links import LinkSpeed
    from weft.topology.spec_parser import Spec

INSIDES: Final = ("nvswitch", "xgmi", "pcie")
NETWORK_LATENCY_PS: Final = 10**6
"""Of a cable of the network: an assumption, which ``nic_lat`` replaces."""

BOX_OPTIONS: Final = "speed, nvlink, lat, nics, hubs, pcie, pcie_lat, nic, nic_lat, cpus, between_cpus"


@dataclass(frozen=True, slots=True)
class GpuBox:
    """What is inside one box, and how fast.

    Parameters
    ----------
    gpus
        How many.
    inside
        ``"nvswitch"``: each GPU on one NVSwitch. ``"xgmi"``: a cable between every two GPUs. ``"pcie"``:
        nothing but PCIe and CPUs.
    near
        Bytes per second of a GPU to the NVSwitch, or of one cable between two GPUs; 0 for ``"pcie"``.
    nics
        Network interfaces of the box.
    hubs
        PCIe switches, each with as many of the GPUs and of the NICs; 0 for one per NIC, or one for two GPUs
        in a box of PCIe alone.
    hub_name
        What a hub is called: ``"pcie"``, or ``"grace"`` for a CPU that takes the place of a PCIe switch.
    pcie, gpu_pcie
        Bytes per second between a hub and a NIC, a CPU or, unless `gpu_pcie` differs, a GPU.
    nic
        Bytes per second of a NIC's cable.
    cpus, between_cpus
        Sockets of a box of PCIe alone, and bytes per second between every two.
    near_latency_ps, pcie_latency_ps, nic_latency_ps
        Of each such link.
    """

    gpus: int = 8
    inside: str = "nvswitch"
    near: int = 0
    nics: int = 8
    hubs: int = 0
    hub_name: str = "pcie"
    pcie: int = 0
    gpu_pcie: int = 0
    nic: int = 0
    cpus: int = 2
    between_cpus: int = 0
    near_latency_ps: int = NVLINK_LATENCY_PS
    pcie_latency_ps: int = PCIE_LATENCY_PS
    nic_latency_ps: int = NETWORK_LATENCY_PS

    def __post_init__(self) -> None:
        check_choice("inside", self.inside, INSIDES, TopologyError)
        usual = self.nics if self.inside != "pcie" else max(self.gpus // 2, 1)
        object.__setattr__(self, "hubs", self.hubs or usual)
        object.__setattr__(self, "gpu_pcie", self.gpu_pcie or self.pcie)
        if self.gpus % self.hubs:
            msg = f"{self.gpus} GPUs do not divide evenly by {self.hubs} PCIe switches; give hubs= or nics="
            raise TopologyError(msg)
        if self.nics > self.gpus or (self.nics % self.hubs and self.hubs % self.nics):
            msg = f"{self.nics} NICs for {self.gpus} GPUs on {self.hubs} PCIe switches do not divide evenly"
            raise TopologyError(f"{msg}; give nics= or hubs=")
        if self.inside != "pcie" and self.nics % self.hubs:
            msg = f"{self.hubs} PCIe switches and {self.nics} NICs: each switch needs one; give hubs="
            raise TopologyError(msg)
        if self.inside == "pcie" and self.hubs % min(self.cpus, self.hubs):
            msg = f"{self.hubs} PCIe switches do not divide evenly by {self.cpus} CPUs; give cpus= or hubs="
            raise TopologyError(msg)

    def cables(self, *, alone: bool) -> int:
        """Cables inside the box, without those of the network."""
        if self.inside == "pcie":
            cpus = min(self.cpus, self.hubs)
            return self.gpus + self.hubs + cpus * (cpus - 1) // 2 + (0 if alone else self.nics)
        near = self.gpus if self.inside == "nvswitch" else self.gpus * (self.gpus - 1) // 2
        return near if alone else near + self.gpus + self.nics

    def draw(self, wiring: CableNotes, number: int, *, alone: bool) -> list[int]:
        """Draw box `number`; return its NICs, or nothing for a box alone, which needs none."""
        ranks = range(number * self.gpus, (number + 1) * self.gpus)
        name = f"host{number}"
        near = {"bandwidth": self.near, "latency_ps": self.near_latency_ps}
        if self.inside == "nvswitch":
            nvswitch = wiring.named(f"{name}.nvswitch")
            for rank in ranks:
                wiring.cable(rank, nvswitch, **near)
        elif self.inside == "xgmi":
            for a, b in combinations(ranks, 2):
                wiring.cable(a, b, **near)
        if alone and self.inside != "pcie":
            return []
        return self.draw_pcie(wiring, ranks, name, alone=alone)

    def draw_pcie(self, wiring: CableNotes, ranks: range, name: str, *, alone: bool) -> list[int]:
        """Draw what is between the GPUs and the network; return the NICs, or nothing for a box alone."""
        hubs = [wiring.named(f"{name}.{self.hub_name}{hub}") for hub in range(self.hubs)]
        wire = {"bandwidth": self.pcie, "latency_ps": self.pcie_latency_ps}
        for index, rank in enumerate(ranks):
            hub = hubs[index * self.hubs // self.gpus]
            wiring.cable(rank, hub, bandwidth=self.gpu_pcie, latency_ps=self.pcie_latency_ps)
        if self.inside == "pcie":
            count = min(self.cpus, self.hubs)
            cpus = [wiring.named(f"{name}.cpu{cpu}") for cpu in range(count)]
            for index, hub in enumerate(hubs):
                wiring.cable(hub, cpus[index * count // self.hubs], **wire)
            for a, b in combinations(cpus, 2):
                wiring.cable(a, b, bandwidth=self.between_cpus, latency_ps=self.pcie_latency_ps)
        if alone:
            return []
        nics = [wiring.named(f"{name}.nic{nic}") for nic in range(self.nics)]
        for index, nic in enumerate(nics):
            wiring.cable(hubs[index * self.hubs // self.nics], nic, **wire)
        return nics


@dataclass(frozen=True, slots=True)
class BoxParts:
    """A box before it is decided whether its speeds are nominal or effective."""

    gpus: int
    inside: str
    near: LinkSpeed
    near_links: int
    nic_megabits: int
    pcie: LinkSpeed
    nics: int = 0
    hubs: int = 0
    hub_name: str = "pcie"
    gpu_hub: LinkSpeed | None = None
    rails: int = 0

    def read(
        self, spec: Spec, latency: int = NVLINK_LATENCY_PS, nic_latency: int | None = NETWORK_LATENCY_PS
    ) -> GpuBox:
        """The box that a spec asks for: these parts, but for what its options say.

        The latencies are those of NVLink and of a network's cable where no option gives them; None for as
        much as NVLink.
        """
        rating = spec.choice("speed", rated_links.RATINGS, "nominal")
        nics = spec.count("nics", self.nics or self.gpus)
        hubs = spec.count("hubs", self.hubs if nics == (self.nics or self.gpus) else 0)
        near_latency = spec.latency("lat", latency)
        sockets = {}
        if self.inside == "pcie":
            between = spec.speed("between_cpus", rated_links.BETWEEN_CPUS.rated(rating))
            sockets = {"cpus": spec.count("cpus", 2), "between_cpus": between}
        try:
            pcie = spec.speed("pcie", self.pcie.rated(rating))
            gpu_pcie = self.gpu_hub.rated(rating) if self.gpu_hub is not None else pcie
            near = 0 if self.inside == "pcie" else self.near.rated(rating, self.near_links)
            return GpuBox(
                gpus=self.gpus,
                inside=self.inside,
                near=near if self.inside == "pcie" else spec.speed("nvlink", near),
                nics=nics,
                hubs=hubs,
                hub_name=self.hub_name,
                pcie=pcie,
                gpu_pcie=gpu_pcie,
                nic=spec.speed("nic", rated_links.network_port(self.nic_megabits).rated(rating)),
                near_latency_ps=near_latency,
                pcie_latency_ps=spec.latency("pcie_lat", PCIE_LATENCY_PS),
                nic_latency_ps=spec.latency("nic_lat", near_latency if nic_latency is None else nic_latency),
                **sockets,
            )
        except TopologyError as error:
            raise spec.error(str(error)) from error

    def with_gpus(self, gpus: int) -> BoxParts:
        """The same box with another number of GPUs, each with a NIC."""
        return replace(self, gpus=gpus, nics=gpus, hubs=0)


_PCIE_5: Final = rated_links.PCIE_X16[32.0]

H100_BOX: Final = BoxParts(8, "nvswitch", rated_links.NVLINK[4], 18, 400_000, _PCIE_5)
"""NVIDIA/nccl#2409: each GPU has a ConnectX-7 of 400 Gbit/s of its own behind one PCIe bridge (PIX)."""

A100_BOX: Final = BoxParts(
    8, "nvswitch", rated_links.NVLINK[3], 12, 200_000, rated_links.PCIE_X16[16.0], hubs=4
)
"""besthub.dev, on A100 and H100 topologies: 4 PCIe 4.0 switches, 8 GPUs and 8 NICs, here divided evenly.

NVIDIA/nccl#812: the NICs of a DGX A100 have 200 Gbit/s."""

B200_BOX: Final = BoxParts(8, "nvswitch", rated_links.NVLINK[5], 18, 400_000, _PCIE_5)
"""DGX SuperPOD B200 reference architecture: a port for each GPU; 400 Gbit/s as in that of GB200."""

GB200_RACK: Final = BoxParts(
    gpus=72,
    inside="nvswitch",
    near=rated_links.NVLINK[5],
    near_links=18,
    nic_megabits=400_000,
    pcie=_PCIE_5,
    hubs=36,
    hub_name="grace",
    gpu_hub=rated_links.C2C_GB200,
    rails=4,
)
"""DGX SuperPOD GB200 reference architecture: 18 trays of 4 GPUs, one NVLink domain, InfiniBand of 400 Gbit/s.

A rack is one host here. That a NIC hangs on the Grace CPU of its GPU, and that each of the 4 NICs of a tray
has a rail of its own, are assumptions."""

MI300X_BOX: Final = BoxParts(8, "xgmi", rated_links.XGMI_MI300X, 1, 400_000, _PCIE_5)
"""AMD's page on xGMI: each GPU has a link to its 7 peers. A NIC of 400 Gbit/s for each is an assumption."""

PCIE_BOX: Final = BoxParts(
    8, "pcie", rated_links.BETWEEN_CPUS, 0, 200_000, rated_links.PCIE_X16[16.0], nics=2, hubs=4
)
"""An assumption: two sockets, two PCIe switches each, and a NIC of 200 Gbit/s for each socket."""
