"""The switches between boxes of GPUs: rails, leaves and spines, three tiers.

- ``rails``: NIC n of every box is on leaf n, the switch of its rail, and spines join the leaves. A leaf that
  is full is followed by another set of leaves, one for each rail, for the next boxes.
- ``leafspine``: all NICs of a box are on one leaf, and so are those of the next boxes until it is full.
- ``threetier``: the same in pods, each with leaves and spines of its own; cores join the spines.
- ``flat``: one switch for all. The boxes have no PCIe and no NICs as parts, only a cable for each GPU.

``oversub`` is what enters a leaf from below divided by what it can send up. What a leaf has for one spine is
drawn as parallel cables of a NIC's speed, so that flows that are hashed (``routing=ecmp``) collide as they do
in reality; where a ratio asks for a fraction of a cable, as one cable of that speed. Switches have
``radix`` ports, 64 as in an NVIDIA QM9700; it says how many boxes a leaf takes and how many spines there are
where the spec does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Protocol

from weft import limits
from weft.topology.cable_notes import CableNotes
from weft.topology.gpu_boxes import BOX_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.topology.gpu_boxes import BoxParts
    from weft.topology.graph import Topology
    from weft.topology.spec_parser import Spec

FABRICS: Final = ("rails", "leafspine", "threetier", "flat")
FABRIC_OPTIONS: Final = "radix, rails, per_leaf, spines, oversub, pods, cores, core_oversub"
ALL_OPTIONS: Final = f"fabric, {FABRIC_OPTIONS}, {BOX_OPTIONS}"
_RADIX: Final = 64
_FLAT_LATENCY_PS: Final = 10**6


class FabricBox(Protocol):
    """What a fabric has to know of the boxes that it joins; all of them are alike."""

    @property
    def nics(self) -> int:
        """Network interfaces of a box."""

    @property
    def nic(self) -> int:
        """Bytes per second of the cable of each."""

    @property
    def nic_latency_ps(self) -> int:
        """Picoseconds of that cable, and of one between switches."""

    def cables(self, *, alone: bool) -> int:
        """Cables inside the box, without those of the network."""

    def draw(self, wiring: CableNotes, number: int, *, alone: bool) -> list[int]:
        """Draw box `number`; return its NICs, or nothing for a box alone, which needs none."""


@dataclass
class Tiers:
    """Draws the switches above the NICs of boxes."""

    spec: Spec
    box: FabricBox
    wiring: CableNotes
    radix: int
    rails: int

    def climb(
        self, lower: Sequence[int], upper: Sequence[int], entering: int | Fraction, oversub: Fraction
    ) -> None:
        """Cables from each lower switch to each upper one: `entering` NICs' worth, divided by `oversub`."""
        worth = Fraction(entering) / oversub / len(upper)
        # Without oversubscription a cable more does no harm; with it the ratio that was asked for is kept.
        whole = worth.denominator == 1 or oversub == 1
        count, speed = (math.ceil(worth), self.box.nic) if whole else (1, int(self.box.nic * worth))
        limits.check(f"{self.spec.text}: links", 2 * count * len(lower) * len(upper), limits.MAX_LINKS)
        for a, b in product(lower, upper):
            self.wiring.cable(a, b, bandwidth=speed, latency_ps=self.box.nic_latency_ps, count=count)

    def enough(self, lower: int, entering: Fraction, oversub: Fraction) -> int:
        """How many switches have the ports for what so many lower ones send up, each as many to each."""
        climbing = entering / oversub
        count = max(int(-(-lower * climbing // self.radix)), 1)
        return next((more for more in range(count, 2 * count) if climbing % more == 0), count)

    def add(self, role: str, count: int, first: int = 0) -> list[int]:
        """So many switches of one role, numbered from `first`."""
        return [self.wiring.named(f"{role}{first + number}") for number in range(count)]

    def plug(self, nic: int, leaf: int) -> None:
        """Draw the cable of a NIC."""
        self.wiring.cable(nic, leaf, bandwidth=self.box.nic, latency_ps=self.box.nic_latency_ps)


def rails(tiers: Tiers, nics: list[list[int]]) -> None:
    """NIC n of each box on the leaf of rail n, leaves on spines."""
    spec, box = tiers.spec, tiers.box
    count = spec.count("rails", tiers.rails)
    if box.nics % count:
        raise spec.error(f"{box.nics} NICs do not divide evenly by {count} rails")
    per_box = box.nics // count
    per_leaf = spec.count("per_leaf", max(tiers.radix // 2 // per_box, 1))
    leaves: list[int] = []
    for first in range(0, len(nics), per_leaf):
        own = tiers.add("leaf", count, len(leaves))
        for members in nics[first : first + per_leaf]:
            for number, nic in enumerate(members):
                tiers.plug(nic, own[number % count])
        leaves += own
    _join_by_spines(tiers, leaves, min(per_leaf, len(nics)) * per_box)


def leafspine(tiers: Tiers, nics: list[list[int]]) -> None:
    """All NICs of a box on one leaf, leaves on spines."""
    leaves, entering = _plug_whole_boxes(tiers, nics, 0, _boxes_per_leaf(tiers))
    _join_by_spines(tiers, leaves, entering)


def _join_by_spines(tiers: Tiers, leaves: list[int], entering: int) -> None:
    spec = tiers.spec
    given = "spines" in spec.values or "oversub" in spec.values
    oversub = _ratio(spec, "oversub")
    if len(leaves) == 1:
        if given:
            raise spec.error(
                "all NICs are on a single leaf, which needs no spines; leave spines and oversub out, or "
                "put fewer boxes on each leaf (per_leaf=)"
            )
        return
    count = spec.count("spines", tiers.enough(len(leaves), Fraction(entering), oversub))
    tiers.climb(leaves, tiers.add("spine", count), entering, oversub)


def threetier(tiers: Tiers, nics: list[list[int]]) -> None:
    """Pods of leaves and spines; each spine of a pod reaches every core."""
    spec = tiers.spec
    pods = spec.count("pods", 2)
    if not 1 < pods <= len(nics) or len(nics) % pods:
        raise spec.error(
            f"{len(nics)} boxes do not divide evenly by {pods} pods, of which there are at least 2"
        )
    oversub, core_oversub = _ratio(spec, "oversub"), _ratio(spec, "core_oversub")
    per_leaf, size = _boxes_per_leaf(tiers), len(nics) // pods
    per_pod = -(-size // per_leaf)
    count = spec.count(
        "spines", tiers.enough(per_pod, Fraction(min(per_leaf, size) * tiers.box.nics), oversub)
    )
    spines: list[int] = []
    for pod in range(pods):
        own = nics[pod * size : (pod + 1) * size]
        leaves, entering = _plug_whole_boxes(tiers, own, pod * per_pod, per_leaf)
        upper = tiers.add("spine", count, pod * count)
        tiers.climb(leaves, upper, entering, oversub)
        spines += upper
    climbing = Fraction(per_pod * entering) / oversub / count
    cores = spec.count("cores", tiers.enough(len(spines), climbing, core_oversub))
    tiers.climb(spines, tiers.add("core", cores), climbing, core_oversub)


def _boxes_per_leaf(tiers: Tiers) -> int:
    return tiers.spec.count("per_leaf", max(tiers.radix // 2 // tiers.box.nics, 1))


def _plug_whole_boxes(
    tiers: Tiers, nics: list[list[int]], first: int, per_leaf: int
) -> tuple[list[int], int]:
    """Leaves with all NICs of so many boxes each, and the most NICs that one has."""
    leaves = tiers.add("leaf", -(-len(nics) // per_leaf), first)
    for number, members in enumerate(nics):
        for nic in members:
            tiers.plug(nic, leaves[number // per_leaf])
    return leaves, min(per_leaf, len(nics)) * tiers.box.nics


def _ratio(spec: Spec, name: str) -> Fraction:
    """How many times more enters than leaves, such as 3 or 1.5."""
    text = spec.take(name)
    if text is None:
        return Fraction(1)
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if len(text) > 9 or not Fraction(1, 64) <= value <= 1024:
        raise spec.error(f"{name}={text:.20} must be a number such as 1, 1.5 or 3")
    return value


def connect(spec: Spec, boxes: int, parts: BoxParts, *, fabric: str) -> Topology:
    """So many boxes on a fabric; a box alone has none, and needs no network interfaces.

    Raises
    ------
    TopologyError
        If the options do not fit together.
    LimitError
        If there would be too many parts.
    """
    limits.check(f"{spec.text}: ranks", boxes * parts.gpus, limits.MAX_RANKS)
    if boxes > 1 and fabric == "flat":
        return _flat(spec, boxes, parts)
    box = parts.read(spec)
    return join_boxes(spec, boxes, parts.gpus, box, fabric=fabric, rail_count=parts.rails or box.nics)


def join_boxes(
    spec: Spec, boxes: int, gpus: int, box: FabricBox, *, fabric: str, rail_count: int, **others: Any
) -> Topology:
    """So many boxes of so many GPUs on rails, leaves and spines, or three tiers; errors as of `connect`.

    `others` are further values of the topology.
    """
    name = spec.text
    limits.check(f"{name}: ranks", boxes * gpus, limits.MAX_RANKS)
    alone = boxes == 1
    given = [option for option in FABRIC_OPTIONS.split(", ") if option in spec.values]
    if alone and given:
        raise spec.error(f"one box alone has no network, so {given[0]} has no meaning; leave it out")
    wiring = CableNotes.sized(name, boxes * gpus, cables=boxes * (box.cables(alone=alone) + box.nics))
    nics = [box.draw(wiring, number, alone=alone) for number in range(boxes)]
    if not alone:
        tiers = Tiers(spec, box, wiring, spec.count("radix", _RADIX, least=2), rail_count)
        {"rails": rails, "leafspine": leafspine, "threetier": threetier}[fabric](tiers, nics)
    return wiring.build(name, hosts=hosts_of(boxes, gpus), **others)


def hosts_of(boxes: int, gpus: int) -> tuple[tuple[int, ...], ...]:
    """Ranks of each box.

    Examples
    --------
    >>> hosts_of(2, 3)
    ((0, 1, 2), (3, 4, 5))
    """
    return tuple(tuple(range(box * gpus, (box + 1) * gpus)) for box in range(boxes))


def _flat(spec: Spec, boxes: int, parts: BoxParts) -> Topology:
    """GPUs on an NVSwitch for each box, and one switch for a cable of each GPU."""
    if parts.inside != "nvswitch":
        raise spec.error("fabric=flat is for boxes with an NVSwitch")
    given = [option for option in ("nics", "hubs", "pcie", "pcie_lat") if option in spec.values]
    if given:
        raise spec.error(f"fabric=flat has no PCIe, so {given[0]} has no meaning; leave it out")
    box = parts.read(spec, latency=_FLAT_LATENCY_PS, nic_latency=None)
    wiring = CableNotes.sized(spec.text, boxes * box.gpus, boxes + 1, cables=2 * boxes * box.gpus)
    for rank in range(wiring.ranks):
        inside = wiring.switch(rank // box.gpus)
        wiring.cable(rank, inside, bandwidth=box.near, latency_ps=box.near_latency_ps)
    for rank in range(wiring.ranks):
        wiring.cable(rank, wiring.switch(boxes), bandwidth=box.nic, latency_ps=box.nic_latency_ps)
    return wiring.build(spec.text, hosts=hosts_of(boxes, box.gpus))
