"""A machine full of GPUs, as `weft.topology.nccl_xml` and `weft.topology.nvidia_smi` find it.

Both describe the same thing: GPUs joined by NVLink, and a tree of PCIe bridges under CPUs. `GpuMachine`
collects it; `GpuMachine.build` decides what of it is a network between ranks:

- Where NVLinks alone join all GPUs, PCIe is left out. No GPU sends to another over PCIe when NVLink leads
  there, and counting those wires would promise a speed that nobody can have.
- Otherwise everything stays. A bridge that has only two cables is a piece of wire and becomes one.

`GpuMachine.build_box` keeps the NICs as well, because a network between machines is to be plugged into them.

Neither format knows latencies; the constants here are typical values for one hop, and assumptions. What is
assumed is said in the topology's `notes`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import _core, limits, units
from weft.errors import TopologyError
from weft.topology.cable_notes import CableNotes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.topology.box_wiring import BoxWiring
    from weft.topology.graph import Topology

GB: Final = 10**9
NVLINK_LATENCY_PS: Final = 500_000
PCIE_LATENCY_PS: Final = 250_000
NETWORK_LATENCY_PS: Final = 2_500_000

_DRAWN: Final = ("gpu", "pcie", "cpu")
"""Cables that are no NVLinks are drawn in this order of their lower ends, those of NICs last."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One direction between two parts."""

    src: int
    dst: int
    bandwidth: int
    latency_ps: int
    nvlink: bool


@dataclass
class GpuMachine:
    """Parts are numbered as they are added; GPUs become ranks in the order given to `build`.

    Errors begin with `source`, the name of the file that describes the machine.

    Examples
    --------
    >>> machine = GpuMachine("two.xml")
    >>> a, b, bridge = machine.add(), machine.add(), machine.add()
    >>> for gpu in (a, b):
    ...     machine.cable(gpu, bridge, 12 * GB, PCIE_LATENCY_PS)
    >>> machine.build("two GPUs", [a, b], [[a, b]])
    <Topology two GPUs: 2 ranks, 0 switches, 2 links>
    """

    source: str
    roles: list[str] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, role: str = "pcie") -> int:
        """Add one more part and return its number; `role` is its name in a box, without a number."""
        self.roles.append(role)
        return len(self.roles) - 1

    def wire(self, src: int, dst: int, bandwidth: int, latency_ps: int, *, nvlink: bool = False) -> None:
        """Draw one direction; several between the same parts are bonded into one later."""
        self.wires.append(Wire(src, dst, bandwidth, latency_ps, nvlink))

    def cable(self, a: int, b: int, bandwidth: int, latency_ps: int, *, nvlink: bool = False) -> None:
        """Add a cable: one link in each direction."""
        self.wire(a, b, bandwidth, latency_ps, nvlink=nvlink)
        self.wire(b, a, bandwidth, latency_ps, nvlink=nvlink)

    def build(self, name: str, gpus: Sequence[int], hosts: Iterable[Iterable[int]]) -> Topology:
        """Turn the parts that matter into a topology.

        Parameters
        ----------
        name
            Name of the topology.
        gpus
            Parts that are ranks, in rank order.
        hosts
            The same parts, grouped by machine.
        """
        wires = [wire for wire in self.wires if wire.nvlink]
        notes = list(self.notes)
        if not _joins_all(gpus, wires):
            wires = _without_dead_ends(gpus, self.wires)
        elif len(wires) < len(self.wires):
            notes.append("PCIe, CPUs and NICs are left out: NVLink joins all GPUs")
        notes.append(_latency_note(wires))
        wires = _paired(_without_pass_through(gpus, _bonded(wires)))
        number = _number_parts(gpus, wires)
        wiring = CableNotes(len(gpus), len(number) - len(gpus))
        for wire in wires:
            wiring.link(number[wire.src], number[wire.dst], wire.bandwidth, wire.latency_ps)
        members = tuple(tuple(sorted(number[gpu] for gpu in host)) for host in hosts)
        try:
            return wiring.build(name, hosts=tuple(host for host in members if host), notes=tuple(notes))
        except TopologyError as error:
            raise type(error)(f"{self.source}: {error}") from error

    def build_box(self, gpus: Sequence[int], nics: Sequence[int]) -> BoxWiring:
        """One machine with its NICs, each of which is a switch at the end of a cable.

        CPUs are left out where NVLink joins all GPUs and each NIC is behind a PCIe switch with one of them.
        Switches are called ``nvswitch``, ``pcie0``, ``cpu0``, ``nic0`` and so on, and everything stands in
        the order in which `weft.topology.gpu_boxes` draws it.
        """
        from weft.topology.box_wiring import BoxWiring

        kept = [*gpus, *nics]
        near = [wire for wire in self.wires if wire.nvlink]
        if _joins_all(gpus, near):
            far = [wire for wire in self.wires if not wire.nvlink]
            short = [wire for wire in far if "cpu" not in (self.roles[wire.src], self.roles[wire.dst])]
            if _reach(gpus, short) >= set(nics):
                used = _reach(nics, short)
                far = [wire for wire in short if wire.src in used]
            wires = [*near, *_without_dead_ends(kept, far)]
        else:
            wires = _without_dead_ends(kept, self.wires)
        wires = _paired(_without_pass_through(kept, _bonded(wires), beside=nics))
        order, names = self._arrange(gpus, nics, wires)
        number = {part: node for node, part in enumerate(order)}
        rows = sorted(wires, key=lambda wire: _drawn_when(wire, number, self.roles))
        links = ((number[row.src], number[row.dst], row.bandwidth, row.latency_ps) for row in rows)
        return BoxWiring(len(gpus), tuple(names[part] for part in order[len(gpus) :]), tuple(links))

    def _arrange(
        self, gpus: Sequence[int], nics: Sequence[int], wires: list[Wire]
    ) -> tuple[list[int], dict[int, str]]:
        """Parts in the order of their nodes, and the name of each that is a switch."""
        found = list(dict.fromkeys(_in_order(gpus, wires)))
        first = {part: place for place, part in enumerate(found)}
        near = {wire.src: first[wire.dst] for wire in wires if self.roles[wire.src] == "nic"}
        order, names = list(gpus), dict[int, str]()
        for role in ("nvswitch", "pcie", "cpu"):
            parts = [part for part in found if self.roles[part] == role]
            alone = role == "nvswitch" and len(parts) == 1
            names |= {part: role if alone else f"{role}{number}" for number, part in enumerate(parts)}
            order += parts
        ordered = sorted(nics, key=lambda nic: near.get(nic, 0))
        return [*order, *ordered], names | {nic: f"nic{number}" for number, nic in enumerate(ordered)}


def _in_order(gpus: Sequence[int], wires: list[Wire]) -> Iterator[int]:
    """Parts by their distance from the GPUs, those of the first GPU first."""
    out: dict[int, list[int]] = {}
    for wire in wires:
        out.setdefault(wire.src, []).append(wire.dst)
    seen, ring = set(gpus), list(gpus)
    yield from ring
    while ring:
        ring = [part for part in dict.fromkeys(b for a in ring for b in out.get(a, ())) if part not in seen]
        seen.update(ring)
        yield from ring


def _reach(starts: Sequence[int], wires: list[Wire]) -> set[int]:
    """Parts that these reach."""
    return set(_in_order(starts, wires))


def _drawn_when(wire: Wire, number: dict[int, int], roles: list[str]) -> tuple[int, int, int, int]:
    """Place of a wire among those of a box: NVLinks, PCIe of GPUs, PCIe above, CPUs, NICs."""
    low, high = sorted((number[wire.src], number[wire.dst]))
    kinds = {roles[wire.src], roles[wire.dst]}
    group = (
        0 if wire.nvlink else 4 if "nic" in kinds else 1 if "gpu" in kinds else 2 if "pcie" in kinds else 3
    )
    ends = (high, low) if "nic" in kinds else (low, high)
    return (group, *ends, int(number[wire.src] > number[wire.dst]))


def _latency_note(wires: list[Wire]) -> str:
    known = {"NVLink": NVLINK_LATENCY_PS, "PCIe and CPUs": PCIE_LATENCY_PS, "network": NETWORK_LATENCY_PS}
    used = {wire.latency_ps for wire in wires}
    return "latency of a link: " + ", ".join(
        f"{name} {units.format_time(latency)}" for name, latency in known.items() if latency in used
    )


def _bonded(wires: list[Wire]) -> list[Wire]:
    """One wire for all of a kind between two parts: a transfer uses them together."""
    found: dict[tuple[int, int, int, bool], int] = {}
    for wire in wires:
        key = (wire.src, wire.dst, wire.latency_ps, wire.nvlink)
        # Clamped so that a hostile sum fails as too fast a link, not as an overflow.
        found[key] = min(found.get(key, 0) + wire.bandwidth, 2 * limits.MAX_BANDWIDTH)
    return [Wire(src, dst, speed, latency, nvlink) for (src, dst, latency, nvlink), speed in found.items()]


def _number_parts(gpus: Sequence[int], wires: list[Wire]) -> dict[int, int]:
    """Node of each part that has wires: GPUs first, in rank order."""
    number = {part: rank for rank, part in enumerate(gpus)}
    for wire in wires:
        for part in (wire.src, wire.dst):
            number.setdefault(part, len(number))
    return number


def _joins_all(gpus: Sequence[int], wires: list[Wire]) -> bool:
    """Whether every GPU reaches every other over these wires."""
    number = _number_parts(gpus, wires)
    src = np.array([number[wire.src] for wire in wires], np.int32)
    dst = np.array([number[wire.dst] for wire in wires], np.int32)
    return _core.unreachable_pair(len(number), len(gpus), src, dst) is None


def _without_dead_ends(gpus: Sequence[int], wires: list[Wire]) -> list[Wire]:
    """Drop bridges and CPUs that lead nowhere, such as those of disks and of GPUs outside the job."""
    keep = set(gpus)
    out: dict[int, set[int]] = {}
    for wire in wires:
        out.setdefault(wire.src, set()).add(wire.dst)
    leaves = deque(part for part in out if part not in keep and len(out[part]) <= 1)
    while leaves:
        part = leaves.popleft()
        for other in out.pop(part, set()):
            if other in out:
                out[other].discard(part)
                if other not in keep and len(out[other]) <= 1:
                    leaves.append(other)
    alive = set(out) | keep
    return [wire for wire in wires if wire.src in alive and wire.dst in alive]


def _without_pass_through(gpus: Sequence[int], wires: list[Wire], beside: Sequence[int] = ()) -> list[Wire]:
    """Join the two cables of a bridge that has only two: the slower speed, both latencies.

    The bridge next to a part of `beside` stays.
    """
    kept, fixed = set(gpus), set(beside)
    leaving: dict[int, list[Wire]] = {}
    for wire in wires:
        leaving.setdefault(wire.src, []).append(wire)
    into = {(wire.src, wire.dst): wire for wire in wires}
    for part in list(leaving):
        ends = sorted({wire.dst for wire in leaving[part]})
        if part in kept or len(leaving[part]) != 2 or len(ends) != 2 or not fixed.isdisjoint(ends):
            continue
        a, b = ends
        if not into.keys() >= {(a, part), (b, part)} or (a, b) in into or (b, a) in into:
            continue
        for src, dst in ((a, b), (b, a)):
            first, second = into[src, part], into[part, dst]
            speed, latency = min(first.bandwidth, second.bandwidth), first.latency_ps + second.latency_ps
            joined = Wire(src, dst, speed, latency, first.nvlink and second.nvlink)
            leaving[src] = [joined if wire is first else wire for wire in leaving[src]]
            into[src, dst] = joined
        del leaving[part]
    return [wire for cables in leaving.values() for wire in cables]


def _paired(wires: list[Wire]) -> list[Wire]:
    """Put the two directions of a cable side by side, forward first, as all of Weft's builders draw them."""
    groups: dict[tuple[int, int], list[Wire]] = {}
    for wire in wires:
        groups.setdefault((min(wire.src, wire.dst), max(wire.src, wire.dst)), []).append(wire)
    return [
        wire
        for group in groups.values()
        for wire in (sorted(group, key=lambda wire: wire.src) if len(group) == 2 else group)
    ]
