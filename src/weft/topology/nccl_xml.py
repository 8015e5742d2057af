"""The XML that NCCL writes when ``NCCL_TOPO_DUMP_FILE`` is set: one machine, or one NVLink domain.

::

    <system version="1">
      <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" host_hash="0x..">
        <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
          <pci busid="0000:07:00.0" class="0x030200" ..>
            <gpu dev="0" sm="80" rank="0"> <nvlink target="0000:c4:00.0" count="2" tclass="0x068000"/> </gpu>
          </pci>
          <pci busid="0000:0b:00.0" class="0x020700" ..> <nic> <net name="mlx5_0" speed="200000"/> </nic>

Speeds of NVLinks, PCIe and ports are those of `weft.topology.rated_links`, nominal unless asked otherwise;
between CPUs they are what NCCL reckons with (its ``src/graph/topo.h``). As in NCCL, all NVSwitches of a
machine together are one switch, NVLinks between the same two ends are bonded, and each GPU lists its own
direction. Machines are told apart by ``host_hash``. NVLink crosses from one to another only where all are
Grace with Hopper or later, as in an NVL72 rack; otherwise each machine has an NVSwitch of its own, and the
NICs, which matter only between machines, are drawn to one switch that stands for the network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Final, NoReturn
from xml.parsers import expat

from weft import limits
from weft.errors import FormatError
from weft.files import name_after
from weft.topology import rated_links
from weft.topology.cluster_fabric import BoxNic, ImportedBox, share_out
from weft.topology.gpu_machine import GB, NETWORK_LATENCY_PS, NVLINK_LATENCY_PS, PCIE_LATENCY_PS, GpuMachine
from weft.topology.nccl_graph import read_graph_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.topology.box_wiring import BoxWiring
    from weft.topology.graph import Topology


LOCAL_SPEED: Final = 5000 * GB
"""Between the parts of one GPU."""

_UNKNOWN_LANE: Final = 8.0
"""GT/s of a PCIe lane where the file does not say."""

_UNKNOWN_PORT: Final = (-1, 0)
"""What drivers say of a port whose speed they do not know; NCCL takes it for 10 Gbit/s."""

_NO_SPEED: Final = re.compile(r"\s*(?:-|[+]?(?:nan|inf)|[+]?0+(?:\.0*)?(?![0-9.]))", re.IGNORECASE)
"""Beginning of a text that is a number, and no speed; "Unknown" is none of these, and sysfs says it."""


@dataclass
class Element:
    """One XML element."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def named(self, name: str) -> Iterator[Element]:
        """Children of one name."""
        return (child for child in self.children if child.name == name)


@dataclass
class Gpu:
    """One ``<gpu>``, and where it was found."""

    element: Element
    bus: str
    host: str
    device: int
    cpu: int
    part: int


def parse_nccl_xml(text: str, source: str, rating: str = "nominal") -> Topology:
    """Build the topology of an NCCL dump.

    Parameters
    ----------
    text
        Contents of the file.
    source
        Its name, for error messages.
    rating
        Whether speeds are ``"nominal"`` or ``"effective"``.

    Raises
    ------
    FormatError
        If the file is not such a dump; says in which line.
    """
    root = _read_tree(text, source)
    if root.name == "graphs":
        box = read_graph_box(root, source)
        if box.inside is None:
            raise FormatError(source, "has one GPU, which is no network; weft import --box takes it")
        return box.inside
    return _read_system(root, source, rating).build(_name(root, source))


def parse_nccl_box(text: str, source: str, rating: str = "nominal") -> ImportedBox:
    """Build the machine of an NCCL dump or graph file, NICs included, to be put into a larger network.

    Raises
    ------
    FormatError
        If the file is neither, or holds several machines.
    """
    root = _read_tree(text, source)
    if root.name == "graphs":
        return read_graph_box(root, source)
    reader = _read_system(root, source, rating)
    machines = len({gpu.host for gpu in reader.gpus})
    if machines > 1:
        reader.fail(root, f"holds {machines} machines; a box is one machine")
    nics = reader.nearest_nics()
    inside = reader.build(_name(root, source)) if len(reader.gpus) > 1 else None
    notes = tuple(note for note in inside.notes if "left out" not in note) if inside else ()
    wired = _read_system(root, source, rating).build_box() if nics else None
    return ImportedBox(source, len(reader.gpus), inside, nics or None, notes, wired)


def _read_system(root: Element, source: str, rating: str) -> _Reader:
    if root.name != "system":
        problem = f"expected <system> or <graphs>, the root of an NCCL dump, found <{root.name[:40]}>"
        raise FormatError(source, problem, f"line {root.line}")
    reader = _Reader(source, rating)
    reader.read(root)
    return reader


def _name(root: Element, source: str) -> str:
    name = root.attributes.get("name") or name_after(source, "nccl")
    return name[: limits.MAX_SPEC_CHARACTERS]


def _read_tree(text: str, source: str) -> Element:
    """Parse XML; document types, and with them entities, are refused."""
    if len(text) > limits.MAX_XML_BYTES:
        problem = f"larger than the {limits.MAX_XML_BYTES >> 20} MiB of XML that Weft accepts"
        raise FormatError(source, problem)
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    top = Element("", {}, 0)
    stack = [top]
    elements = 0

    def fail(problem: str) -> NoReturn:
        raise FormatError(source, problem, f"line {parser.CurrentLineNumber}")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal elements
        elements += 1
        if len(stack) > limits.MAX_DEPTH:
            fail(f"nested deeper than {limits.MAX_DEPTH}")
        if elements > limits.MAX_XML_ELEMENTS:
            fail(f"more than {limits.MAX_XML_ELEMENTS:,} elements")
        element = Element(name, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = lambda *_: fail("has a DOCTYPE; NCCL writes none, and Weft reads none")
    try:
        parser.Parse(text.removeprefix("\ufeff"), True)
    except expat.ExpatError as error:
        problem = f"not XML: {expat.ErrorString(error.code)}"
        raise FormatError(source, problem, f"line {error.lineno}") from error
    return top.children[0]


class _Reader:
    """Walks the tree of one dump and collects its parts."""

    def __init__(self, source: str, rating: str) -> None:
        self.source = source
        self.rating = rating
        self.machine = GpuMachine(source)
        self.gpus: list[Gpu] = []
        self.cpus: list[tuple[int, str, int]] = []
        self.arches: set[str] = set()
        self.ports: list[tuple[int, int, int]] = []
        self.slots: list[tuple[int, int, int]] = []

    def fail(self, element: Element, problem: str) -> NoReturn:
        raise FormatError(self.source, f"<{element.name}>: {problem}", f"line {element.line}")

    def read(self, root: Element) -> None:
        for cpu in root.named("cpu"):
            host = cpu.attributes.get("host_hash", "")
            part = self.machine.add("cpu")
            self.arches.add(cpu.attributes.get("arch", ""))
            self.cpus.append((part, host, _interconnect_speed(self, cpu)))
            for child in cpu.children:
                if child.name == "pci":
                    self.read_pci(child, None, part, host, part)
                elif child.name == "nic":
                    self.read_ports(child, part, LOCAL_SPEED)
        ranked = [gpu for gpu in self.gpus if "rank" in gpu.element.attributes]
        if 0 < len(ranked) < len(self.gpus):
            # As in NCCL, a GPU without a rank is not part of the job.
            self.machine.notes.append(f"{len(self.gpus) - len(ranked)} GPUs without a rank are left out")
            self.gpus = ranked
        if not self.gpus:
            needed = "what NCCL_TOPO_DUMP_FILE writes, not a template for NCCL"
            self.fail(root, f"holds no <gpu>; Weft needs {needed}")
        if len(self.cpus) > limits.MAX_CPUS:
            self.fail(root, f"holds more than {limits.MAX_CPUS} CPUs")

    def read_pci(self, pci: Element, parent_pci: Element | None, parent: int, host: str, cpu: int) -> None:
        speed = self.pci_speed(pci)
        gpus = list(pci.named("gpu"))
        if gpus:
            device = self.machine.add("gpu" if len(gpus) == 1 else "pcie")
            self.machine.cable(device, parent, speed, PCIE_LATENCY_PS)
            for gpu in gpus:
                part = device
                if len(gpus) > 1:
                    part = self.machine.add("gpu")
                    self.machine.cable(part, device, LOCAL_SPEED, 0)
                self.gpus.append(Gpu(gpu, self.bus(pci), host, device, cpu, part))
            return
        nics = list(pci.named("nic"))
        for nic in nics:
            self.read_ports(nic, parent, speed)
        if nics:
            return
        below = parent
        if parent_pci is None or not _one_broadcom_switch(parent_pci, pci):
            below = self.machine.add()
            self.machine.cable(below, parent, speed, PCIE_LATENCY_PS)
        for child in pci.named("pci"):
            self.read_pci(child, pci, below, host, cpu)

    def read_ports(self, nic: Element, parent: int, limit: int) -> None:
        nets = list(nic.named("net"))
        if nets:
            self.slots.append((parent, limit, len(nets)))
        for net in nets:
            megabits = self.integer(net, "speed", 0)
            if megabits < min(_UNKNOWN_PORT):
                self.fail(net, f"speed must be at least 1 Mbit/s, or -1 where it is unknown, not {megabits}")
            known = 10_000 if megabits in _UNKNOWN_PORT else megabits
            speed = rated_links.network_port(known).rated(self.rating)
            latency = _microseconds(net.attributes.get("latency", "")) or NETWORK_LATENCY_PS
            self.ports.append((parent, min(speed, limit), latency))

    def nearest_nics(self) -> tuple[BoxNic, ...]:
        """NICs with the GPUs that are the fewest bridges away; NICs near to the same GPUs share them out."""
        near: dict[int, set[int]] = {}
        for wire in self.machine.wires:
            near.setdefault(wire.src, set()).add(wire.dst)
        order = self.in_rank_order({gpu.host: 0 for gpu in self.gpus})
        rank = {gpu.device: index for index, gpu in enumerate(order)}
        groups: dict[tuple[int, ...], list[int]] = {}
        for parent, speed, _ in self.ports:
            seen, ring = {parent}, {parent}
            while ring and not ring & rank.keys():
                ring = {other for part in ring for other in near.get(part, ())} - seen
                seen |= ring
            gpus = tuple(sorted(rank[part] for part in ring & rank.keys())) or tuple(range(len(order)))
            groups.setdefault(gpus, []).append(speed)
        return tuple(
            BoxNic(own, speed)
            for gpus, speeds in groups.items()
            for own, speed in zip(share_out(gpus, len(speeds)), speeds, strict=True)
        )

    def build(self, name: str) -> Topology:
        hosts = {host: number for number, host in enumerate(dict.fromkeys(gpu.host for gpu in self.gpus))}
        notes = self.machine.notes
        notes.insert(0, f"speeds of NVLink, PCIe and ports are {self.rating} ones")
        rack = len(hosts) > 1 and self.is_rack()
        if rack:
            notes.append(f"the {len(hosts)} machines are one NVLink domain, as in an NVL72 rack")
        self.join_nvlinks(rack=rack)
        self.join_cpus()
        if len(hosts) > 1 and self.ports:
            if not rack:
                notes.append("NICs meet in one switch that can take all they send")
            core = self.machine.add()
            for parent, speed, latency in self.ports:
                self.machine.cable(parent, core, speed, latency)
        ordered = self.in_rank_order(hosts)
        members: list[list[int]] = [[] for _ in hosts]
        for gpu in ordered:
            members[hosts[gpu.host]].append(gpu.part)
        return self.machine.build(name, [gpu.part for gpu in ordered], members)

    def build_box(self) -> BoxWiring:
        """The machine with its NICs, which are cabled to the bridges that they are on."""
        self.join_nvlinks(rack=False)
        self.join_cpus()
        nics = []
        for parent, limit, ports in self.slots:
            slot = parent
            if ports > 1:
                slot = self.machine.add()
                self.machine.cable(slot, parent, limit, PCIE_LATENCY_PS)
            for _ in range(ports):
                nics.append(self.machine.add("nic"))
                self.machine.cable(slot, nics[-1], limit, PCIE_LATENCY_PS)
        ordered = self.in_rank_order({gpu.host: 0 for gpu in self.gpus})
        return self.machine.build_box([gpu.part for gpu in ordered], nics)

    def in_rank_order(self, hosts: dict[str, int]) -> list[Gpu]:
        """By ``rank`` where those are given and differ, else machine by machine, by ``rank`` or ``dev``."""
        key = "rank" if all("rank" in gpu.element.attributes for gpu in self.gpus) else "dev"
        numbers = {id(gpu): self.integer(gpu.element, key, 0) for gpu in self.gpus}
        differ = len(set(numbers.values())) == len(self.gpus)
        return sorted(self.gpus, key=lambda gpu: (0 if differ else hosts[gpu.host], numbers[id(gpu)]))

    def is_rack(self) -> bool:
        """Whether NVLink may cross from machine to machine: so far only Grace machines have such cables."""
        return self.arches == {"arm64"} and all(self.integer(g.element, "sm", 0) >= 90 for g in self.gpus)

    def join_nvlinks(self, *, rack: bool) -> None:
        devices = {(gpu.host, gpu.bus): gpu.device for gpu in self.gpus}
        nvswitches: dict[str, int] = {}
        done: set[int] = set()
        for gpu in self.gpus:
            if gpu.device in done:
                continue
            done.add(gpu.device)
            for link in gpu.element.children:
                if link.name == "xgmi":
                    self.fail(link, "dumps of RCCL are not understood; describe the machine in TOML instead")
                if link.name == "c2c":
                    speed = self.positive(link, "bw") * self.positive(link, "count") * 10**6
                    self.machine.cable(gpu.device, gpu.cpu, speed, NVLINK_LATENCY_PS)
                if link.name != "nvlink":
                    continue
                speed = self.positive(link, "count") * self.nvlink_speed(gpu.element)
                target = devices.get((gpu.host, _normal_bus(link.attributes.get("target", ""))))
                if link.attributes.get("tclass", "0x03" if target is not None else "").startswith("0x03"):
                    if target is not None:
                        self.machine.wire(gpu.device, target, speed, NVLINK_LATENCY_PS, nvlink=True)
                elif link.attributes.get("tclass") == "0x068001":
                    self.machine.cable(gpu.device, gpu.cpu, speed, NVLINK_LATENCY_PS)
                else:
                    domain = "" if rack else gpu.host
                    if domain not in nvswitches:
                        nvswitches[domain] = self.machine.add("nvswitch")
                    self.machine.cable(gpu.device, nvswitches[domain], speed, NVLINK_LATENCY_PS, nvlink=True)

    def join_cpus(self) -> None:
        for (part, host, speed), (other, other_host, _) in permutations(self.cpus, 2):
            if host == other_host:
                self.machine.wire(part, other, speed, PCIE_LATENCY_PS)

    def nvlink_speed(self, gpu: Element) -> int:
        """Bytes per second of one NVLink, by compute capability."""
        if "sm" not in gpu.attributes:
            self.fail(gpu, "has NVLinks but no sm, which tells how fast they are")
        return rated_links.nvlink_of(self.integer(gpu, "sm", 0)).rated(self.rating)

    def pci_speed(self, pci: Element) -> int:
        """Bytes per second: lanes times the speed of one; x16 and 8 GT/s where not said."""
        width = self.integer(pci, "link_width", 0) or 16
        unsaid = "PCIe links whose speed or width is not said: 16 lanes, 8 GT/s"
        if unsaid not in self.machine.notes and not (
            pci.attributes.get("link_width") and pci.attributes.get("link_speed")
        ):
            self.machine.notes.append(unsaid)
        if not 1 <= width <= 64:
            self.fail(pci, f"link_width {width} is not a number of lanes")
        said = pci.attributes.get("link_speed", "")
        if _NO_SPEED.match(said):
            self.fail(pci, f"link_speed must be such as 16.0 GT/s, not {said[:40]!r}")
        match = re.match(r"\s*([0-9]{1,3}(?:\.[0-9]{1,3})?) GT/s", said)
        known, lane = rated_links.PCIE_X16, float(match[1]) if match else _UNKNOWN_LANE
        return width * known.get(lane, known[_UNKNOWN_LANE]).rated(self.rating) // 16

    def bus(self, pci: Element) -> str:
        if "busid" not in pci.attributes:
            self.fail(pci, "has no busid")
        return _normal_bus(pci.attributes["busid"])

    def positive(self, element: Element, key: str) -> int:
        value = self.integer(element, key, None)
        if not 1 <= value <= 10**6:
            self.fail(element, f"{key} must be 1 to 1,000,000, not {value}")
        return value

    def integer(self, element: Element, key: str, default: int | None) -> int:
        text = element.attributes.get(key)
        if not text and default is not None:
            return default
        if text is None:
            self.fail(element, f"has no {key}")
        if not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", text):
            self.fail(element, f"{key} must be a whole number, not {text[:40]!r}")
        return int(text)


def _interconnect_speed(reader: _Reader, cpu: Element) -> int:
    """Bytes per second between two CPUs, as NCCL reckons; an unknown x86 as AMD's."""
    arch, vendor = cpu.attributes.get("arch", ""), cpu.attributes.get("vendor", "")
    if arch == "ppc64":
        return 32 * GB
    if arch == "arm64":
        return 6 * GB
    family, model = reader.integer(cpu, "familyid", 0), reader.integer(cpu, "modelid", 0)
    if vendor == "GenuineIntel":
        if family == 6:
            for least, speed in ((0xCF, 40), (0x8F, 22), (0x55, 10)):
                if model >= least:
                    return speed * GB
        return 6 * GB
    if vendor in ("CentaurHauls", "  Shanghai  "):
        return (9 if (family, model) == (7, 0x5B) else 6) * GB
    return 16 * GB


def _one_broadcom_switch(upper: Element, lower: Element) -> bool:
    """Whether two bridges are levels of one Broadcom switch, which passes full speed between all ports."""
    keys = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    above, below = ([bridge.attributes.get(key, "").lower() for key in keys] for bridge in (upper, lower))
    if above[:3] != below[:3] or above[0] != "0x1000" or above[2] != "0x1000":
        return False
    if above[1] == "0xc010":
        return above[3].startswith("0xa") and below[3].startswith("0xa")
    return above[1] == "0xc030" and above[3].startswith("0x0") and below[3].startswith("0x1")


def _normal_bus(text: str) -> str:
    """Bus id in one spelling: NVML writes eight digits of domain, sysfs four."""
    domain, colon, rest = text.lower().partition(":")
    return f"{domain.lstrip('0')}{colon}{rest}"


def _microseconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})(?:\.([0-9]{1,6}))?[0-9]*", text)
    return int(match[1]) * 10**6 + int((match[2] or "0").ljust(6, "0")) if match else 0
