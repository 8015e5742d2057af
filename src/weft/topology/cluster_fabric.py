"""A cluster as two things that different files know: machines full of GPUs, and the network between machines.

Slurm and ``ibnetdiscover`` name machines and switches; NCCL and ``nvidia-smi`` know the inside of one
machine. `ClusterFabric` is the first, `ImportedBox` the second, and `join_cluster` makes a topology of both.
What neither says comes from `ClusterOptions`, and is noted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from weft import limits, units
from weft.errors import InputError, TopologyError, list_some
from weft.topology.box_wiring import BoxWiring
from weft.topology.cable_notes import CableNotes
from weft.topology.gpu_machine import PCIE_LATENCY_PS
from weft.topology.hostlist import format_hostlist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.topology.graph import Topology

NIC_SPEED: Final = 50 * 10**9
"""400 Gb/s, as the NICs of `dgx-h100` have it; an assumption, to be replaced by yours."""

LATENCY_PS: Final = 1_000_000
"""Of one link of the network, as in specs."""

MOST_OVERSUBSCRIBED: Final = 1000.0
_LONGEST_NAME: Final = 200


@dataclass(frozen=True)
class ClusterOptions:
    """What an imported file may leave open.

    Parameters
    ----------
    nic_speed
        Bytes per second of a NIC's cable, where the file does not say.
    nics
        NICs of a machine, where no file says; by default one for each GPU.
    latency_ps
        Picoseconds of one link of the network.
    oversubscription
        What the machines below a switch can send, over what its uplinks carry, where the file does not say.
    """

    nic_speed: int = NIC_SPEED
    nics: int | None = None
    latency_ps: int = LATENCY_PS
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.nics is not None and not 1 <= self.nics <= limits.MAX_GPUS:
            raise InputError(f"{self.nics} NICs: give 1 to {limits.MAX_GPUS} of one machine")
        if not 0.001 <= self.oversubscription <= MOST_OVERSUBSCRIBED:
            msg = f"an oversubscription of {self.oversubscription:g}: give 0.001 to {MOST_OVERSUBSCRIBED:g}"
            raise InputError(msg)


@dataclass(frozen=True, slots=True)
class FabricPort:
    """Where a cable of a machine ends: number of the switch, and bytes per second where the file says it."""

    switch: int
    bandwidth: int | None = None


@dataclass(frozen=True, slots=True)
class FabricTrunk:
    """A cable between two switches; one of unknown speed leads from `below` up to `above`."""

    below: int
    above: int
    bandwidth: int | None = None


@dataclass(frozen=True)
class ClusterFabric:
    """Machines and switches by name, and the cables between them.

    Parameters
    ----------
    source
        Name of the file.
    nodes, switches
        Names; machines become ranks in this order.
    ports
        Cables of each machine, in the order of its NICs. One of unknown speed stands for all NICs.
    trunks
        Cables between switches.
    notes
        What was assumed.
    """

    source: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    ports: tuple[tuple[FabricPort, ...], ...]
    trunks: tuple[FabricTrunk, ...]
    notes: tuple[str, ...] = ()

    def only(self, names: Sequence[str], where: str) -> ClusterFabric:
        """The part with these machines, in this order; `where` says who named them."""
        number = {name: index for index, name in enumerate(self.nodes)}
        missing = [name for name in names if name not in number]
        if missing:
            known = format_hostlist(list(self.nodes))
            msg = f"{where}: {list_some(missing, 4)} are not in {self.source}, which has {known}"
            raise InputError(msg)
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InputError(f"{where}: {list_some(twice, 4)} given twice")
        ports = tuple(self.ports[number[name]] for name in names)
        return ClusterFabric(self.source, tuple(names), self.switches, ports, self.trunks, self.notes)

    def upwards(self) -> list[int]:
        """Switches, each before those that trunks of unknown speed lead up to.

        Raises
        ------
        TopologyError
            If a switch is above itself.
        """
        below: dict[int, set[int]] = {switch: set() for switch in range(len(self.switches))}
        for trunk in self.trunks:
            if trunk.bandwidth is None:
                below[trunk.above].add(trunk.below)
        try:
            return list(TopologicalSorter(below).static_order())
        except CycleError as error:
            circle = list_some((self.switches[switch] for switch in error.args[1]), separator=" below ")
            msg = f"{self.source}: a switch is above itself: {circle}"
            raise TopologyError(msg) from error

    def without_dead_ends(self) -> ClusterFabric:
        """Drop switches that are on no way between two machines."""
        near: list[set[int]] = [set() for _ in self.switches]
        for trunk in self.trunks:
            if trunk.below != trunk.above:
                near[trunk.below].add(trunk.above)
                near[trunk.above].add(trunk.below)
        held = {port.switch for ports in self.ports for port in ports}
        alive = set(range(len(self.switches)))
        leaves = [switch for switch in alive if switch not in held and len(near[switch]) <= 1]
        while leaves:
            switch = leaves.pop()
            alive.discard(switch)
            for other in near[switch]:
                near[other].discard(switch)
                if other in alive and other not in held and len(near[other]) == 1:
                    leaves.append(other)
        if len(alive) == len(self.switches):
            return self
        number = {switch: index for index, switch in enumerate(sorted(alive))}
        return ClusterFabric(
            self.source,
            self.nodes,
            tuple(self.switches[switch] for switch in number),
            tuple(tuple(FabricPort(number[p.switch], p.bandwidth) for p in ports) for ports in self.ports),
            tuple(
                FabricTrunk(number[trunk.below], number[trunk.above], trunk.bandwidth)
                for trunk in self.trunks
                if trunk.below in number and trunk.above in number
            ),
            self.notes,
        )


@dataclass(frozen=True, slots=True)
class BoxNic:
    """A NIC, the GPUs that are nearest to it, and its speed where the file says it."""

    gpus: tuple[int, ...]
    bandwidth: int


@dataclass(frozen=True)
class ImportedBox:
    """The inside of one machine.

    Parameters
    ----------
    source
        Name of the file.
    gpus
        How many.
    inside
        Links between the GPUs; None where there is a single one.
    nics
        NICs with the GPUs nearest to them; None where the file does not say.
    notes
        What was assumed.
    wired
        The machine with PCIe and NICs as parts; None where the file does not say how they are cabled.
    near
        GPUs nearest to each NIC, where the file says that but not how fast NICs are; else empty.
    """

    source: str
    gpus: int
    inside: Topology | None = None
    nics: tuple[BoxNic, ...] | None = None
    notes: tuple[str, ...] = ()
    wired: BoxWiring | None = None
    near: tuple[tuple[int, ...], ...] = ()


ONE_GPU: Final = ImportedBox("", 1)
"""Stands for a machine of which nothing is known."""


def share_out(gpus: Sequence[int], nics: int) -> list[tuple[int, ...]]:
    """GPUs of each NIC where all are equally near: the same number for each, as far as that goes.

    Examples
    --------
    >>> share_out(range(4), 2), share_out(range(2), 4)
    ([(0, 1), (2, 3)], [(0,), (0,), (1,), (1,)])
    """
    count = len(gpus)
    if nics >= count:
        return [(gpus[nic * count // nics],) for nic in range(nics)]
    shares: list[list[int]] = [[] for _ in range(nics)]
    for index, gpu in enumerate(gpus):
        shares[index * nics // count].append(gpu)
    return [tuple(share) for share in shares]


def join_cluster(
    name: str,
    fabric: ClusterFabric,
    boxes: Mapping[str, ImportedBox],
    options: ClusterOptions | None = None,
    notes: Sequence[str] = (),
) -> Topology:
    """Put machines into a fabric.

    Parameters
    ----------
    name
        Name of the topology.
    fabric
        The network between machines.
    boxes
        The machine of each name; one GPU for those that are missing.
    options
        What the files leave open.
    notes
        What else was assumed.

    Examples
    --------
    >>> fabric = ClusterFabric("lab.conf", ("a", "b"), ("s",), ((FabricPort(0),), (FabricPort(0),)), ())
    >>> join_cluster("lab", fabric, {})
    <Topology lab: 2 ranks, 1 switches, 4 links>
    """
    options = options or ClusterOptions()
    fabric.upwards()  # before a circle is dropped as a dead end
    fabric = fabric.without_dead_ends()
    placed = [boxes.get(node, ONE_GPU) for node in fabric.nodes]
    ranks = sum(box.gpus for box in placed)
    limits.check(f"{fabric.source}: ranks", ranks, limits.MAX_RANKS)
    inner = sum(box.inside.links for box in placed if box.inside is not None)
    limits.check(f"{fabric.source}: links", inner + 2 * ranks + 2 * len(fabric.trunks), limits.MAX_LINKS)
    machines = zip(fabric.nodes, placed, fabric.ports, strict=True)
    nics = [_nics_of(node, box, ports, options) for node, box, ports in machines]
    shared = sum(len(nic.gpus) > 1 for row in nics for nic, _ in row)
    within = sum(box.inside.switches for box in placed if box.inside is not None)
    limits.check(f"{fabric.source}: switches", len(fabric.switches) + within + shared, limits.MAX_SWITCHES)
    wiring = CableNotes(ranks)
    for called in _usable_names(fabric.switches):
        wiring.named(called)
    hosts = _draw_machines(wiring, fabric.nodes, placed, nics, options)
    supply = [sum(nic.bandwidth for nic, _ in row) for row in nics]
    for trunk, speed in zip(fabric.trunks, _trunk_speeds(fabric, supply, options), strict=True):
        below, above = wiring.switch(trunk.below), wiring.switch(trunk.above)
        wiring.cable(below, above, bandwidth=speed, latency_ps=options.latency_ps)
    said = [*fabric.notes, *notes, *_assumptions(fabric, placed, options, shared=shared > 0)]
    said += [f"inside of a machine: {note}" for note in dict.fromkeys(n for box in placed for n in box.notes)]
    try:
        return wiring.build(
            name[: limits.MAX_SPEC_CHARACTERS],
            hosts=hosts if any(box.gpus > 1 for box in placed) else (),
            notes=tuple(note[: limits.MAX_SPEC_CHARACTERS] for note in said[: limits.MAX_NOTES]),
        )
    except TopologyError as error:
        raise type(error)(f"{fabric.source}: {error}") from error


def _usable_names(names: Sequence[str]) -> list[str]:
    """Names of switches as a topology takes them: no bare numbers, no ``s0``, no signs with a meaning.

    Examples
    --------
    >>> _usable_names(["leaf1", "s0", "a, b"])
    ['leaf1', 'switch-s0', 'a_ b']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[,+>\x00-\x1f\x7f]", "_", name).strip()[:_LONGEST_NAME]
        plain = f"switch-{plain}" if re.fullmatch(r"s?[0-9]*|host[0-9]+\.gpu[0-9]+", plain) else plain
        number = len(found)
        found.append(plain if plain not in taken else f"{plain} ({number})")
        taken.add(found[-1])
    return found if len(taken) == len(found) else [f"switch-{number}" for number in range(len(found))]


def _draw_machines(
    wiring: CableNotes,
    nodes: Sequence[str],
    placed: list[ImportedBox],
    nics: list[list[tuple[BoxNic, FabricPort]]],
    options: ClusterOptions,
) -> tuple[tuple[int, ...], ...]:
    """Draw machines and the cables of their NICs; return the ranks of each."""
    hosts: list[tuple[int, ...]] = []
    first, latency_ps = 0, options.latency_ps
    # Several machines may have one name only after signs with a meaning were taken out of it.
    for node, box, row in zip(_usable_names(nodes), placed, nics, strict=True):
        if box.inside is not None:
            BoxWiring.of(box.inside).draw_at(wiring, first, node)
        for number, (nic, port) in enumerate(row):
            end = first + nic.gpus[0]
            if len(nic.gpus) > 1:
                end = wiring.named(f"{node}.nic{number}")
                for gpu in nic.gpus:
                    wiring.cable(first + gpu, end, bandwidth=nic.bandwidth, latency_ps=PCIE_LATENCY_PS)
            wiring.cable(end, wiring.switch(port.switch), bandwidth=nic.bandwidth, latency_ps=latency_ps)
        hosts.append(tuple(range(first, first + box.gpus)))
        first += box.gpus
    return tuple(hosts)


def _nics_of(
    node: str, box: ImportedBox, ports: tuple[FabricPort, ...], options: ClusterOptions
) -> list[tuple[BoxNic, FabricPort]]:
    """NICs of one machine, each with its port of the fabric."""
    if len(ports) == 1 and ports[0].bandwidth is None:
        nics = box.nics
        if nics is None:
            nearest = share_out(range(box.gpus), options.nics or box.gpus)
            if box.near and options.nics in (None, len(box.near)):
                nearest = list(box.near)
            nics = tuple(BoxNic(gpus, options.nic_speed) for gpus in nearest)
        return [(nic, ports[0]) for nic in nics]
    if box.nics is not None and len(box.nics) != len(ports):
        msg = (
            f"{node} has {units.count(len(ports), 'port')} on the fabric, but {box.source} has "
            f"{units.count(len(box.nics), 'NIC')}; give the machine that belongs to it with --box HOSTS=FILE"
        )
        raise InputError(msg)
    nearest = [nic.gpus for nic in box.nics] if box.nics else share_out(range(box.gpus), len(ports))
    if len(box.near) == len(ports):
        nearest = list(box.near)
    limit = [nic.bandwidth for nic in box.nics] if box.nics else [limits.MAX_BANDWIDTH] * len(ports)
    return [
        (BoxNic(gpus, min(most, port.bandwidth or options.nic_speed)), port)
        for gpus, most, port in zip(nearest, limit, ports, strict=True)
    ]


def _trunk_speeds(fabric: ClusterFabric, supply: list[int], options: ClusterOptions) -> list[int]:
    """Bytes per second of each trunk; one of unknown speed carries its share of what is below it."""
    parents: list[list[int]] = [[] for _ in fabric.switches]
    for trunk in fabric.trunks:
        if trunk.bandwidth is None:
            parents[trunk.below].append(trunk.above)
    held = [0.0] * len(fabric.switches)
    for ports, speed in zip(fabric.ports, supply, strict=True):
        for port in ports:
            held[port.switch] += speed / len(ports)
    for switch in fabric.upwards():
        for above in parents[switch]:
            held[above] += held[switch] / len(parents[switch])
    speeds = []
    for trunk in fabric.trunks:
        share = held[trunk.below] / max(1, len(parents[trunk.below])) / options.oversubscription
        speeds.append(trunk.bandwidth or max(1, min(int(share), limits.MAX_BANDWIDTH)))
    return speeds


def _assumptions(
    fabric: ClusterFabric, placed: list[ImportedBox], options: ClusterOptions, *, shared: bool
) -> list[str]:
    """What was not in any file."""
    found = []
    counts = sorted({box.gpus for box in placed})
    if any(box is ONE_GPU for box in placed):
        found.append("a machine is one rank, because no file describes its GPUs (--box does)")
    else:
        found.append(f"ranks are GPUs, {' or '.join(map(str, counts))} of each machine, machine by machine")
    unknown = any(port.bandwidth is None for ports in fabric.ports for port in ports)
    if unknown:
        speed = units.human_bandwidth(options.nic_speed)
        for box in {id(box): box for box in placed if box.nics is None}.values():
            number = "one for each GPU" if options.nics is None else f"{options.nics} in each machine"
            if options.nics is None and box.near:
                number = f"{len(box.near)} in each machine, as {box.source} says"
            said = f"NICs: {number}, {speed} each (--nics, --nic-speed)"
            if said not in found:
                found.append(said)
    if any(trunk.bandwidth is None for trunk in fabric.trunks):
        over = f"{options.oversubscription:g} (--oversubscription)"
        found.append(f"uplinks carry what all machines below send, over {over}")
    if shared:
        found.append("a NIC that several GPUs share is a switch, and their links to it are as fast as it is")
    latency = units.format_time(options.latency_ps)
    found.append(f"latency of a link of the network: {latency} (--latency)")
    return found
