"""One machine, many times, on a fabric: ``node.xml*16@fabric=leafspine,oversub=3``.

``BOX*COUNT[@option=value,...][+fail=...][+speed=...]``. The box is the file of one machine (NCCL's dump, the
table of ``nvidia-smi topo -m``, TOML) or a spec of one (``dgx-h100:1``, ``nvlink:8``). The fabric and its
options are those of `weft.topology.box_fabrics`.

A box of a preset is built as the preset builds it, so that ``dgx-h100:1*4`` is ``dgx-h100:4``. A box of a
file is drawn as the file says. NICs are those of the file: network ports in NCCL's dump, columns of the table
of ``nvidia-smi``, switches called ``nic0``, ``nic1`` in TOML. Where it has none, each GPU gets one, behind a
PCIe switch of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from weft import limits, units
from weft.errors import FormatError, TopologyError
from weft.files import exists, name_after
from weft.topology import box_fabrics, gpu_boxes, rated_links
from weft.topology.box_wiring import BoxWiring
from weft.topology.cable_notes import CableNotes
from weft.topology.gpu_machine import PCIE_LATENCY_PS
from weft.topology.kinds import KINDS
from weft.topology.spec_parser import (
    Spec,
    build_routed,
    is_spec,
    read_options,
    read_shape,
    read_suffixes,
    with_changes,
)

if TYPE_CHECKING:
    from weft.topology.cluster_fabric import ImportedBox
    from weft.topology.graph import Topology
    from weft.topology.kinds import Kind

_CHANGES: Final = re.compile(r"\+(?:fail|speed)=")
_FORM: Final = re.compile(
    r"(?P<box>.+?)\*(?P<count>[0-9]{1,18})(?:@(?P<options>[^*+]*))?(?P<changes>(?:\+.*)?)\Z", re.DOTALL
)
_SPEC: Final = re.compile(r"([a-z][a-z0-9-]*):([^@+]*)(?:@([^+]*))?\Z")
_BY_FILE: Final = "nics, hubs, pcie, pcie_lat"
_OPTIONS: Final = f"fabric, {box_fabrics.FABRIC_OPTIONS}, speed, {_BY_FILE}, nic, nic_lat, routing, seed"


class RepeatedBox(NamedTuple):
    """The parts of such a description, as text."""

    box: str
    boxes: int
    options: str | None
    changes: str


def split_repeated(text: str) -> RepeatedBox | None:
    """Take a description apart; None where it is something else, such as the name of a file that exists.

    Examples
    --------
    >>> split_repeated("node.xml*16@fabric=flat+fail=0-1*1")
    RepeatedBox(box='node.xml', boxes=16, options='fabric=flat', changes='+fail=0-1*1')
    >>> split_repeated("torus:4x4+fail=0-1*1") is None
    True
    """
    match = _FORM.match(text)
    if match is None or _CHANGES.search(match["box"]) or _is_file(text):
        return None
    if match["changes"] and _is_file(text[: match.start("changes")]):
        return None
    return RepeatedBox(match["box"], int(match["count"]), match["options"], match["changes"])


def _is_file(text: str) -> bool:
    try:
        return exists(Path(text))
    except FormatError:  # too long for the name of a file
        return False


def parse_repeated(text: str, parts: RepeatedBox) -> Topology:
    """Build what `split_repeated` found in a text.

    Raises
    ------
    InputError
        If the box cannot be read or is several machines, or the options do not fit it.
    LimitError
        If there would be too many parts.
    """
    if len(text) > limits.MAX_SPEC_CHARACTERS:
        raise TopologyError(f"{text[:30]!r}...: {len(text):,} characters are too many; use a TOML file")
    values = read_options(text, parts.options)
    changes = read_suffixes(text, parts.changes.split("+")[1:])
    if split_repeated(parts.box) is not None:
        raise TopologyError(f"{text}: several *; what stands before the last one is one box")
    if parts.boxes == 0:
        raise TopologyError(f"{text}: 0 boxes; give at least 1")
    head = _SPEC.match(parts.box)
    kind = KINDS.get(head[1]) if head is not None and is_spec(parts.box) else None
    if head is not None and kind is not None and kind.boxes is not None:
        own = read_options(text, head[3])
        twice = next((name for name in own if name in values), None)
        if twice is not None:
            raise TopologyError(f"{text}: option {twice!r} is given twice, before and behind the *")
        spec = Spec(text, read_shape(text, head[2]), own | values)
        topology = _build_preset(spec, parts, head[1], kind)
    else:
        box, values = _take_rating(text, parts.box, values)
        spec = Spec(text, [], values)
        topology = build_routed(
            spec, lambda own: _build_file(own, parts._replace(box=box)), "a machine from a file", _OPTIONS
        )
        if not is_spec(box):
            topology = replace(topology, name=f"{name_after(box, 'node')}{text[len(box) :]}")
    return with_changes(topology, changes)


def _take_rating(text: str, box: str, values: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The box without ``@speed=`` behind its file, and the options with it."""
    from weft.topology.load import split_changes

    changed = None if is_spec(box) else split_changes(box)
    if changed is None or changed.rating is None:
        return box, values
    if "speed" in values:
        raise TopologyError(f"{text}: option 'speed' is given twice, before and behind the *")
    return changed.file, {**values, "speed": changed.rating}


def _build_preset(spec: Spec, parts: RepeatedBox, name: str, kind: Kind) -> Topology:
    """Boxes of a kind that knows how to build them."""

    def build(spec: Spec) -> Topology:
        assert kind.boxes is not None
        count, made_of = kind.boxes(spec)
        if count != 1:
            raise spec.error(f"{parts.box} is {count} boxes; what stands before the * is one box")
        fabric = spec.choice("fabric", box_fabrics.FABRICS, "rails")
        return box_fabrics.connect(spec, parts.boxes, made_of, fabric=fabric)

    names = f"fabric, {box_fabrics.FABRIC_OPTIONS}, {kind.options}".split(", ")
    return build_routed(spec, build, f"{name} on a fabric", ", ".join(dict.fromkeys(names)))


def _build_file(spec: Spec, parts: RepeatedBox) -> Topology:
    from weft.topology.cluster_import import read_box

    rating = spec.choice("speed", rated_links.RATINGS, "nominal")
    box = read_box(parts.box, rating)
    limits.check(f"{spec.text}: ranks", parts.boxes * box.gpus, limits.MAX_RANKS)
    fabric = spec.choice("fabric", box_fabrics.FABRICS, "rails")
    if parts.boxes == 1 and box.gpus == 1:
        raise spec.error("one box with one GPU is no network; give several boxes")
    inside = BoxWiring(1) if box.inside is None else BoxWiring.of(box.inside)
    if fabric == "flat" and parts.boxes > 1:
        return _flat(spec, parts.boxes, inside, _nic_speed(spec, box, rating), box.notes)
    node, notes = _read_node(spec, box, inside, rating)
    return box_fabrics.join_boxes(
        spec,
        parts.boxes,
        box.gpus,
        node,
        fabric=fabric,
        rail_count=node.nics,
        notes=(*box.notes, *notes)[: limits.MAX_NOTES] if parts.boxes > 1 else box.notes,
    )


def _nic_speed(spec: Spec, box: ImportedBox, rating: str) -> int:
    """Bytes per second of each NIC: that of the option, of the file, or 400 Gbit/s."""
    found = sorted({nic.bandwidth for nic in box.nics or ()})
    if len(found) > 1 and "nic" not in spec.values:
        speeds = " and ".join(map(units.human_bandwidth, found))
        raise spec.error(f"{box.source} has NICs of {speeds}; give nic= with one speed for all")
    unsaid = rated_links.network_port(gpu_boxes.H100_BOX.nic_megabits).rated(rating)
    return spec.speed("nic", found[0] if len(found) == 1 else unsaid)


def _read_node(
    spec: Spec, box: ImportedBox, inside: BoxWiring, rating: str
) -> tuple[NodeBox, tuple[str, ...]]:
    """The box that is drawn, and what was assumed of it."""
    nic = _nic_speed(spec, box, rating)
    latency_ps = spec.latency("nic_lat", gpu_boxes.NETWORK_LATENCY_PS)
    speed = units.human_bandwidth(nic)
    wired = box.wired or (inside.with_nics(box.nics) if box.nics else inside if inside.nics else None)
    if wired is not None:
        given = [option for option in _BY_FILE.split(", ") if option in spec.values]
        if given:
            raise spec.error(f"{box.source} says how its NICs are cabled; leave {given[0]} out")
        said = "" if box.nics else f"NICs: {speed} each (nic=)"
        return NodeBox(inside, wired, None, nic, latency_ps), (said,) if said else ()
    pcie = rated_links.PCIE_X16[32.0].rated(rating)
    try:
        behind = gpu_boxes.GpuBox(
            gpus=box.gpus,
            nics=spec.count("nics", box.gpus),
            hubs=spec.count("hubs", 0),
            pcie=spec.speed("pcie", pcie),
            pcie_latency_ps=spec.latency("pcie_lat", PCIE_LATENCY_PS),
            nic=nic,
        )
    except TopologyError as error:
        raise spec.error(str(error)) from error
    count = "one for each GPU" if behind.nics == box.gpus else f"{behind.nics} in each machine"
    note = f"NICs: {count}, {speed} each, PCIe {units.human_bandwidth(behind.pcie)} (nics=, nic=, pcie=)"
    return NodeBox(inside, inside, behind, nic, latency_ps), (note,)


@dataclass(frozen=True, slots=True)
class NodeBox:
    """One machine as its file describes it, for `weft.topology.box_fabrics`.

    Parameters
    ----------
    inside
        Its GPUs alone, which is all that a machine without a network needs.
    wired
        The machine with what leads to the network, as far as the file says.
    behind
        PCIe switches and NICs that the file does not have; None where it has them.
    nic, nic_latency_ps
        Bytes per second and picoseconds of a NIC's cable.
    """

    inside: BoxWiring
    wired: BoxWiring
    behind: gpu_boxes.GpuBox | None
    nic: int
    nic_latency_ps: int

    @property
    def nics(self) -> int:
        """Network interfaces of a box."""
        return len(self.wired.nics) if self.behind is None else self.behind.nics

    def cables(self, *, alone: bool) -> int:
        """Cables inside the box, without those of the network."""
        if alone:
            return -(-len(self.inside.links) // 2)
        own = -(-len(self.wired.links) // 2)
        return own if self.behind is None else own + self.behind.gpus + self.behind.nics

    def draw(self, wiring: CableNotes, number: int, *, alone: bool) -> list[int]:
        """Draw box `number`; return its NICs, or nothing for a box alone."""
        if alone:
            self.inside.draw(wiring, number)
            return []
        nics = self.wired.draw(wiring, number)
        if self.behind is None:
            return nics
        ranks = range(number * self.wired.gpus, (number + 1) * self.wired.gpus)
        return self.behind.draw_pcie(wiring, ranks, f"host{number}", alone=False)


def _flat(spec: Spec, boxes: int, inside: BoxWiring, nic: int, notes: tuple[str, ...]) -> Topology:
    """Boxes without PCIe and NICs, and one switch for a cable of each GPU."""
    given = next((option for option in _BY_FILE.split(", ") if option in spec.values), None)
    if given is not None:
        raise spec.error(f"fabric=flat has no PCIe, so {given} has no meaning; leave it out")
    latency_ps = spec.latency("nic_lat", gpu_boxes.NETWORK_LATENCY_PS)
    ranks = boxes * inside.gpus
    cables = boxes * -(-len(inside.links) // 2) + ranks
    limits.check(f"{spec.text}: switches", boxes * len(inside.names) + 1, limits.MAX_SWITCHES)
    wiring = CableNotes.sized(spec.text, ranks, cables=cables)
    for number in range(boxes):
        inside.draw(wiring, number)
    leaf = wiring.named("leaf0")
    for rank in range(ranks):
        wiring.cable(rank, leaf, bandwidth=nic, latency_ps=latency_ps)
    said = f"NICs: one for each GPU, {units.human_bandwidth(nic)} each (nic=)"
    return wiring.build(spec.text, hosts=box_fabrics.hosts_of(boxes, inside.gpus), notes=(*notes, said))
