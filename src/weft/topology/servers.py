"""Servers full of GPUs on a fabric: PCIe switches, a root complex, and few network interfaces or many.

Two servers that are sold, and what EFLOPS is about:

- All GPUs of a server share a NIC or two. These hang on the root complex, so what leaves a GPU crosses its
  PCIe switch, the root complex, and then a NIC that all the others want as well.
- Every GPU has a NIC of its own on its own PCIe switch, and crosses nothing that another GPU uses.

Ranks are the GPUs, server by server. Nothing here says which way a message takes: inside a server the way
over PCIe is the shortest, and to another server the one through the nearest NIC, so ``shortest`` and ``ecmp``
go the way that hardware would.

No paper's speeds are in here. The defaults are what PCIe 3.0 x16 achieves and what 100 Gb/s Ethernet
carries; both are assumptions, and parameters. So is the speed of peer-to-peer transfers through the root
complex, which many processors forward more slowly than a PCIe switch does (docs/topology.md has sources).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from weft.errors import TopologyError, check_choice
from weft.topology.cable_notes import CableNotes
from weft.topology.gpu_machine import PCIE_LATENCY_PS

if TYPE_CHECKING:
    from weft.topology.graph import Topology
    from weft.topology.spec_parser import Spec

PCIE_SPEED: Final = 12 * 10**9
"""What a PCIe 3.0 x16 link achieves of its 15.75 GB/s: NCCL reckons with as much."""

NETWORK_SPEED: Final = 12_500_000_000
"""100 Gb/s."""

NETWORK_LATENCY_PS: Final = 10**6
FABRICS: Final = ("switch", "clos", "bigraph")
PLACES: Final = ("root", "switch")
_USUAL_GPUS: Final = 2
"""GPUs behind one PCIe switch of a server whose NICs hang on the root complex."""


@dataclass(frozen=True, slots=True)
class Server:
    """What is inside one server.

    Parameters
    ----------
    gpus
        How many; each has a link to a PCIe switch.
    nics
        How many, shared evenly.
    nic_at
        ``"switch"``: one NIC on each PCIe switch. ``"root"``: all on the root complex. Empty: on the switches
        if every GPU has a NIC of its own, else on the root.
    pcie_switches
        How many; 0 for one per NIC where these are on switches, else one for every two GPUs (a single one
        for an odd number of them).
    pcie
        Bytes per second of a PCIe link, either way: from a GPU or a NIC to what it hangs on.
    root
        Bytes per second of a port of the root complex, either way: what peer-to-peer transfers through it get
        from or to a PCIe switch, or a NIC that hangs on it (which has no more than `pcie`). Flows share a
        port, ports are independent. 0 for as much as `pcie`, which is no limit.
    pcie_latency_ps
        Of each of these links.

    Raises
    ------
    TopologyError
        If these do not fit together.

    Examples
    --------
    >>> Server(gpus=8, nics=8).pcie_switches, Server(gpus=8, nics=1).pcie_switches
    (8, 4)
    """

    gpus: int = 8
    nics: int = 1
    nic_at: str = ""
    pcie_switches: int = 0
    pcie: int = PCIE_SPEED
    root: int = 0
    pcie_latency_ps: int = PCIE_LATENCY_PS

    def __post_init__(self) -> None:
        if min(self.gpus, self.nics) < 1 or self.pcie_switches < 0:
            has = f"{self.gpus} GPUs, {self.nics} NICs and {self.pcie_switches} PCIe switches"
            raise TopologyError(f"a server of {has}: it needs at least one of each")
        own = self.nics == self.gpus
        found = self.nic_at or ("switch" if own else "root")
        check_choice("nic_at", found, PLACES, TopologyError)
        shared = 1 if self.gpus % _USUAL_GPUS else self.gpus // _USUAL_GPUS
        usual = self.nics if found == "switch" else shared
        object.__setattr__(self, "nic_at", found)
        object.__setattr__(self, "pcie_switches", self.pcie_switches or usual)
        object.__setattr__(self, "root", self.root or self.pcie)
        if self.gpus % self.pcie_switches:
            switches = f"{self.pcie_switches} PCIe switches"
            raise TopologyError(f"{self.gpus} GPUs do not divide evenly by {switches}; give switches=")
        if found == "switch" and self.nics != self.pcie_switches:
            # With two on a switch, the network and not the server would decide which one a GPU uses.
            msg = f"{self.nics} NICs on {self.pcie_switches} PCIe switches: give one for each, or nic_at=root"
            raise TopologyError(msg)

    @property
    def has_root(self) -> bool:
        """Whether anything crosses a root complex."""
        return self.pcie_switches > 1 or self.nic_at == "root"

    @property
    def nodes(self) -> int:
        """Switches that a server has in the topology: PCIe switches, the root complex, and NICs."""
        return self.pcie_switches + self.has_root + self.nics

    @property
    def cables(self) -> int:
        """Cables inside a server."""
        return self.gpus + self.nics + (self.pcie_switches if self.has_root else 0)


@dataclass(frozen=True, slots=True)
class Fabric:
    """What joins the NICs, which are plugged in server by server.

    Parameters
    ----------
    kind
        ``"switch"``: one, as large as need be. ``"clos"``: leaves, each joined to all spines. ``"bigraph"``:
        EFLOPS's two halves of leaves, joined crosswise.
    leaves
        Of a Clos, or switches of a BiGraph: as many as divide the NICs.
    spines
        Of a Clos; 0 for as many as a leaf has NICs, which is not oversubscribed.
    speed, latency_ps
        Of the cable of a NIC.
    uplink
        Bytes per second between switches; 0 for as much as `speed`.
    uplinks
        Parallel cables between two joined switches.

    Raises
    ------
    TopologyError
        If it cannot be built.
    """

    kind: str = "switch"
    leaves: int = 1
    spines: int = 0
    speed: int = NETWORK_SPEED
    latency_ps: int = NETWORK_LATENCY_PS
    uplink: int = 0
    uplinks: int = 1

    def __post_init__(self) -> None:
        check_choice("fabric", self.kind, FABRICS, TopologyError)
        if min(self.leaves, self.uplinks) < 1 or self.spines < 0:
            has = f"{self.leaves} leaves, {self.spines} spines and {self.uplinks} uplinks"
            raise TopologyError(f"a fabric of {has} cannot be")
        if self.kind == "bigraph" and (self.leaves < 2 or self.leaves % 2):
            raise TopologyError(f"a BiGraph has two equal halves, so leaves={self.leaves} must be even")
        if self.kind == "switch" and self.leaves != 1:
            msg = f"leaves={self.leaves}: one switch has no leaves; give fabric=clos or fabric=bigraph"
            raise TopologyError(msg)
        if self.spines and self.kind != "clos":
            raise TopologyError(f"spines={self.spines}: only a Clos has spines, not fabric={self.kind}")
        object.__setattr__(self, "uplink", self.uplink or self.speed)

    def tiers(self, ports: int) -> tuple[range, range]:
        """Switches of which each of the former is joined to each of the latter; leaves have so many NICs."""
        if self.kind == "bigraph":
            return range(self.leaves // 2), range(self.leaves // 2, self.leaves)
        spines = (self.spines or ports) if self.kind == "clos" else 0
        return range(self.leaves), range(self.leaves, self.leaves + spines)


def connect(name: str, count: int, server: Server, fabric: Fabric) -> Topology:
    """Put equal servers on a fabric.

    Parameters
    ----------
    name
        Of the topology.
    count
        How many servers. A single one has no NICs, for it has nobody to reach through them.
    server, fabric
        Which ones.

    Returns
    -------
    Topology
        Switches are numbered server by server (PCIe switches, root complex, NICs), then leaves, then spines.

    Raises
    ------
    TopologyError
        If the NICs do not divide evenly by the leaves.
    LimitError
        If it is too large.

    Examples
    --------
    >>> own = connect("own", 2, Server(gpus=4, nics=4), Fabric())
    >>> [own.node_name(int(own.link_dst[link])) for link in own.route(0, 4)]
    ['s0', 's5', 's18', 's14', 's9', '4']
    """
    nics = count * server.nics
    ports, over = divmod(nics, fabric.leaves)
    if count > 1 and over:
        raise TopologyError(f"{name}: {nics} NICs do not divide evenly by {fabric.leaves} leaves")
    alone = count == 1
    lower, upper = fabric.tiers(ports)
    inside, outside = server.nodes - alone * server.nics, 0 if alone else upper.stop
    across = 0 if alone else nics + len(lower) * len(upper) * fabric.uplinks
    cables = count * server.cables + across
    wiring = CableNotes.sized(name, count * server.gpus, count * inside + outside, cables=cables)
    plugs = [plug for number in range(count) for plug in _fill(wiring, number, server, alone=alone)]
    if not alone:
        first, latency = wiring.switch(count * inside), fabric.latency_ps
        for number, plug in enumerate(plugs):
            leaf = first + number // ports
            wiring.cable(plug, leaf, bandwidth=fabric.speed, latency_ps=latency)
        for a, b in product(lower, upper):
            wiring.cable(
                first + a, first + b, bandwidth=fabric.uplink, latency_ps=latency, count=fabric.uplinks
            )
    ranks = range(count * server.gpus)
    hosts = tuple(tuple(ranks[first : first + server.gpus]) for first in ranks[:: server.gpus])
    return wiring.build(name, hosts=hosts)


def _fill(wiring: CableNotes, number: int, server: Server, *, alone: bool) -> list[int]:
    """Draw the inside of a server and give its NICs."""
    first = wiring.switch(number * (server.nodes - alone * server.nics))
    root = first + server.pcie_switches
    nics = [] if alone else [root + server.has_root + nic for nic in range(server.nics)]
    latency = server.pcie_latency_ps
    for gpu in range(server.gpus):
        switch = first + gpu * server.pcie_switches // server.gpus
        wiring.cable(number * server.gpus + gpu, switch, bandwidth=server.pcie, latency_ps=latency)
    if server.has_root:
        for switch in range(first, root):
            wiring.cable(switch, root, bandwidth=server.root, latency_ps=latency)
    for index, nic in enumerate(nics):
        on_root = server.nic_at == "root"
        speed = min(server.pcie, server.root) if on_root else server.pcie
        wiring.cable(root if on_root else first + index, nic, bandwidth=speed, latency_ps=latency)
    return nics


def from_spec(spec: Spec) -> Topology:
    """``servers:HxG``: H servers of G GPUs, on one switch, a Clos or a BiGraph."""
    count, gpus = spec.sizes(2, "servers:SERVERSxGPUS, such as servers:4x8")
    kind = spec.choice("fabric", FABRICS, "switch")
    pcie, speed = spec.speed("pcie", PCIE_SPEED), spec.speed("bw", NETWORK_SPEED)
    if kind != "switch" and "leaves" not in spec.values:
        raise spec.error(f"fabric={kind} needs leaves=, as many as divide the NICs")
    between = [name for name in ("uplink", "uplinks") if name in spec.values]
    if kind == "switch" and between:
        problem = f"{between[0]} joins switches, and fabric=switch has one; give fabric=clos or bigraph"
        raise spec.error(problem)
    inside: dict[str, Any] = {
        "gpus": gpus,
        "nics": spec.count("nics", 1),
        "nic_at": spec.choice("nic_at", PLACES, ""),
        "pcie_switches": spec.count("switches", 0),
        "pcie": pcie,
        "root": spec.speed("root", pcie),
        "pcie_latency_ps": spec.latency("pcie_lat", PCIE_LATENCY_PS),
    }
    outside: dict[str, Any] = {
        "kind": kind,
        "leaves": spec.count("leaves", 1),
        "spines": spec.count("spines", 0),
        "speed": speed,
        "latency_ps": spec.latency("lat", NETWORK_LATENCY_PS),
        "uplink": spec.speed("uplink", speed),
        "uplinks": spec.count("uplinks", 1),
    }
    try:
        server, fabric = Server(**inside), Fabric(**outside)
    except TopologyError as error:
        raise spec.error(str(error)) from error
    return connect(spec.text, count, server, fabric)
