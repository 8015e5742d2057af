"""The output of ``ibnetdiscover``: every switch, adapter and cable of an InfiniBand network.

::

    switchguid=0x1070fd03001763d6(1070fd03001763d6)
    Switch  41 "S-1070fd03001763d6"   # "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 1 lmc 0
    [1]     "H-946dae03005c2c6a"[1](946dae03005c2c6a)   # "node001 mlx5_0" lid 14 4xNDR
    [33]    "S-1070fd03001763f6"[1]   # "MF0;spine1:MQM9700/U1" lid 3 4xNDR

    caguid=0x946dae03005c2c6a
    Ca      1 "H-946dae03005c2c6a"    # "node001 mlx5_0"
    [1](946dae03005c2c6a)  "S-1070fd03001763d6"[1]   # lid 14 lmc 0 "MF0;leaf1:MQM9700/U1" lid 1 4xNDR

A cable is listed at both of its ends and counted once. An adapter belongs to the machine that its
description begins with; adapters of one machine are its NICs, in the order of their names. Speeds are what
the lanes carry after coding. Switches' own adapters for reductions ("Aggregation Node") and routers are left
out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from weft import limits
from weft.errors import FormatError, list_some, quote
from weft.topology.cluster_fabric import ClusterFabric, FabricPort, FabricTrunk

LANE_MBIT_S: Final = {
    "SDR": 2_000,
    "DDR": 4_000,
    "QDR": 8_000,
    "FDR10": 10_000,
    "FDR": 13_640,
    "EDR": 25_000,
    "HDR": 50_000,
    "NDR": 100_000,
    "XDR": 200_000,
}
"""Megabits per second of one lane after coding, by the names of the InfiniBand Trade Association."""

_HEAD: Final = re.compile(r'(Switch|Ca|Rt)\s+[0-9]{1,4}\s+"([^"]{1,200})"\s*(?:#\s*"([^"]*)")?.*')
_CABLE: Final = re.compile(
    r'\[([0-9]{1,4})\](?:\[ext [0-9]+\])?(?:\([^()]*\))?\s+"([^"]{1,200})"\[([0-9]{1,4})\](?:\[ext [0-9]+\])?'
    r"(?:\([^()]*\))?\s*(?:#(.*))?"
)
_RATE: Final = re.compile(r"\b(1|2|4|8|12)x([A-Z]{3}(?:10)?)\b")
_IGNORED: Final = re.compile(r"(#|(vend|dev)id=|(sysimg|switch|ca|rt)guid=|(Non-)?Chassis|ibwarn).*")
_FIRST: Final = re.compile(r"(vend|dev)id=|(sysimg|switch|ca)guid=|(Switch|Ca)\s+[0-9]+\s+\"")
_ADAPTER: Final = re.compile(r"(\S+) ((?:HCA-|[a-z]+[0-9a-z]*_)[0-9]+)")
_AGGREGATION: Final = "Aggregation Node"


_Port = tuple[str, int]


@dataclass
class _Device:
    """A switch, adapter or router."""

    name: str
    kind: str
    description: str = ""


@dataclass
class _Found:
    """What the lines say; a cable is between two pairs of device and port."""

    devices: dict[str, _Device] = field(default_factory=dict)
    cables: dict[tuple[_Port, _Port], int | None] = field(default_factory=dict)
    peers: dict[_Port, _Port] = field(default_factory=dict)


def is_ibnetdiscover(text: str) -> bool:
    """Whether the first lines are those that ``ibnetdiscover`` begins with."""
    for line in text.removeprefix("\ufeff")[: limits.MAX_LINE_CHARACTERS].split("\n"):
        if line.startswith("# Topology file: generated on"):
            return True
        if line.strip() and not line.startswith(("#", "ibwarn")):
            return _FIRST.match(line) is not None
    return False


def parse_ibnetdiscover(text: str, source: str) -> ClusterFabric:
    """Read the output of ``ibnetdiscover``.

    Raises
    ------
    FormatError
        If a line is none of its lines, a port is cabled to two places, or no machine is on the network.
    """
    found = _read(text, source)
    hosts, notes = _machines(found)
    switches = sorted(device.name for device in found.devices.values() if device.kind == "Switch")
    number = {name: index for index, name in enumerate(switches)}
    ports: dict[str, list[tuple[tuple[object, ...], FabricPort]]] = {}
    trunks: list[FabricTrunk] = []
    unsaid = False
    for (end, other), speed in found.cables.items():
        kinds = found.devices[end[0]].kind, found.devices[other[0]].kind
        if kinds == ("Switch", "Switch"):
            unsaid = unsaid or speed is None
            trunks.append(FabricTrunk(number[end[0]], number[other[0]], speed))
        elif "Switch" in kinds:
            switch, adapter = (end, other) if kinds[0] == "Switch" else (other, end)
            if adapter[0] in hosts:
                host, order = hosts[adapter[0]]
                ports.setdefault(host, []).append(
                    ((*order, adapter[1]), FabricPort(number[switch[0]], speed))
                )
        elif end[0] in hosts and other[0] in hosts:
            names = f"{hosts[end[0]][0]} and {hosts[other[0]][0]}"
            raise FormatError(source, f"{names} are cabled without a switch; describe them in a TOML file")
    if not ports:
        raise FormatError(source, "no machine is cabled to a switch")
    if unsaid:
        raise FormatError(source, "a cable between switches has no speed such as 4xNDR")
    nodes = sorted(ports, key=_natural)
    rows = tuple(tuple(port for _, port in sorted(ports[node], key=lambda one: one[0])) for node in nodes)
    notes.append("speeds are those of the cables, as ibnetdiscover saw them, not measured ones")
    described = tuple(_switch_name(found.devices[name]) for name in switches)
    return ClusterFabric(source, tuple(nodes), described, rows, tuple(trunks), tuple(notes))


def _read(text: str, source: str) -> _Found:
    found = _Found()
    current: _Device | None = None
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip()
        place = f"line {number}"
        if not line or _IGNORED.fullmatch(line):
            continue
        if len(line) > limits.MAX_LINE_CHARACTERS:
            raise FormatError(source, f"longer than {limits.MAX_LINE_CHARACTERS:,} characters", place)
        if (head := _HEAD.fullmatch(line)) is not None:
            current = _declare(found, head[2], head[1], head[3] or "", source, place)
        elif (cable := _CABLE.fullmatch(line)) is not None:
            if current is None:
                raise FormatError(source, "a port before the first Switch or Ca", place)
            _add_cable(found, current, cable, source, place)
        else:
            problem = f"{quote(line)} is not understood; expected the output of ibnetdiscover"
            raise FormatError(source, problem, place)
    return found


def _declare(found: _Found, name: str, kind: str, description: str, source: str, place: str) -> _Device:
    device = found.devices.get(name)
    if device is None:
        limits.check(f"{source}: devices", len(found.devices) + 1, limits.MAX_RANKS + limits.MAX_SWITCHES)
        device = found.devices[name] = _Device(name, kind, description)
    elif device.kind != kind:
        raise FormatError(source, f"{quote(name)} is a {device.kind} elsewhere and a {kind} here", place)
    device.description = description or device.description
    return device


def _add_cable(found: _Found, device: _Device, cable: re.Match[str], source: str, place: str) -> None:
    kind = {"S-": "Switch", "H-": "Ca", "R-": "Rt"}.get(cable[2][:2])
    if kind is None:
        problem = f"{quote(cable[2])} is neither a switch, S-, nor an adapter, H-, nor a router, R-"
        raise FormatError(source, problem, place)
    comment = cable[4] or ""
    words = re.findall(r'"([^"]*)"', comment)
    peer = _declare(found, cable[2], kind, words[-1] if words else "", source, place)
    if peer is device:
        raise FormatError(source, f"port {cable[1]} is cabled to the device it is on", place)
    rates = _RATE.findall(re.sub(r'"[^"]*"', "", comment))
    speed = None
    if rates:
        width, rate = rates[-1]
        if rate not in LANE_MBIT_S:
            known = ", ".join(LANE_MBIT_S)
            raise FormatError(source, f"the speed {rate} is not known; known: {known}", place)
        speed = int(width) * LANE_MBIT_S[rate] * 125_000
    first, second = sorted(((device.name, int(cable[1])), (peer.name, int(cable[3]))))
    for end, other in ((first, second), (second, first)):
        before = found.peers.setdefault(end, other)
        if before != other:
            said = f"{_port(end)} is cabled to {_port(before)} elsewhere, and to {_port(other)} here"
            raise FormatError(source, said, place)
    limits.check(f"{source}: cables", len(found.cables) + 1, limits.MAX_LINKS // 2)
    found.cables[first, second] = found.cables.get((first, second)) or speed


def _port(port: _Port) -> str:
    return f"port {port[1]} of {quote(port[0])}"


def _machines(found: _Found) -> tuple[dict[str, tuple[str, tuple[object, ...]]], list[str]]:
    """Machine of each adapter, and the adapter's place among its NICs."""
    hosts: dict[str, tuple[str, tuple[object, ...]]] = {}
    notes: list[str] = []
    nameless: list[str] = []
    left_out = 0
    for device in found.devices.values():
        if device.kind == "Switch":
            continue
        if device.kind == "Rt" or _AGGREGATION in device.description:
            left_out += 1
            continue
        match = _ADAPTER.fullmatch(device.description.strip())
        if match is None:
            nameless.append(device.name)
            hosts[device.name] = (device.name, _natural(""))
        else:
            hosts[device.name] = (match[1], _natural(match[2]))
    if left_out:
        notes.append(f"{left_out} routers and aggregation nodes are left out")
    if nameless:
        what = list_some(nameless, 2)
        notes.append(f"adapters whose description names no machine are machines of their own: {what}")
    return hosts, notes


def _switch_name(device: _Device) -> str:
    """Name between ``MF0;`` and the colon, as managed switches write it, else the description or the GUID."""
    match = re.fullmatch(r"MF0;([^:;]+):.*", device.description)
    return match[1] if match else device.description or device.name


def _natural(text: str) -> tuple[object, ...]:
    """Sort key in which node2 comes before node10; text and numbers never meet at one place."""
    parts = re.split(r"([0-9]{1,18})", text)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))
