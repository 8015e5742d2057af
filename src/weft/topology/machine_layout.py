"""Where the parts of boxes go in a drawing: hosts as frames with their parts, tiers of switches above.

What a switch is follows from its name: ``host3.nic5`` is NIC 5 in frame ``host3``, and ``leaf0`` stands in
a tier of its own. Imported networks have names of their own: ``node017.nvswitch`` is in frame ``node017``,
and a switch that is in no frame stands in the tier that its distance from the frames gives. A network in
which some switch has another sort of name is laid out by `weft.topology.layout`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from weft.topology.layout import Box, Layout

if TYPE_CHECKING:
    from weft.topology.graph import Topology

ROLES: Final = {
    "nvswitch": "NVSwitch",
    "pcie": "PCIe switch",
    "grace": "Grace CPU",
    "cpu": "CPU",
    "nic": "NIC",
    "leaf": "leaf switch",
    "spine": "spine switch",
    "core": "core switch",
    "switch": "switch",
}
"""Roles that names tell, and what they are called in a legend."""

_NAME: Final = re.compile(r"(?:(.+)\.)?([a-z]+?)([0-9]{0,6})\Z")
_NUMBERED: Final = re.compile(r"(host|group)([0-9]+)\Z")
TIERS: Final = ("leaf", "spine", "core")
"""Roles of switches that are in no frame, from below."""

_UNKNOWN: Final = ""
_ROWS: Final = ("pcie", "grace", "cpu", "nic", "leaf", "spine")
"""Rows of a frame above its ranks, from below."""

_FULL_STEP: Final = 42.0
_TITLE: Final = 16.0
_LEAST_STEP: Final = 5.0
_WIDEST: Final = 1500.0


@dataclass
class MachineFrame:
    """A host or group: its ranks, and its switches by role and number."""

    title: str
    ranks: list[int] = field(default_factory=list)
    parts: dict[str, dict[int, int]] = field(default_factory=dict)
    stands_for: int = 1


def role_of(name: str) -> str | None:
    """What a switch of this name is, or None if the name does not say.

    Examples
    --------
    >>> role_of("host3.nic5"), role_of("spine0"), role_of("s0")
    ('nic', 'spine', None)
    """
    match = _NAME.match(name)
    return match[2] if match is not None and match[2] in ROLES else None


def short_name(name: str) -> str:
    """Name of a part inside its frame.

    Examples
    --------
    >>> short_name("host3.nic5"), short_name("leaf0")
    ('nic5', 'leaf0')
    """
    return name.rpartition(".")[2]


def lay_out_machines(topology: Topology) -> Layout | None:
    """Frames side by side, tiers above; None where names do not say what the switches are."""
    found = sort_machines(topology)
    if found is None:
        return None
    frames, tiers = found
    columns = sum(frame_columns(frame) for frame in frames) + len(frames)
    step = max(min(_FULL_STEP, _WIDEST / columns), _LEAST_STEP)
    compact = step < 0.8 * _FULL_STEP
    layout = Layout([(0.0, 0.0)] * topology.nodes, 13.0)
    layout.dot = max(min(0.36 * step, 5.0), 1.6) if compact else 0.0
    rise = 1.5 * step if not compact else max(1.9 * step, 16.0)
    x = 0.0
    top = 0.0
    for frame in frames:
        top = min(top, place_frame(topology, layout, frame, x, step, rise))
        wide = (frame_columns(frame) + 1.0) * step + (12.0 if compact else 6.0)
        x += max(wide, 6.6 * min(len(frame.title), 24) + 18.0)
    width = x - step
    _place_tiers(layout, tiers, width, top)
    if compact:
        layout.dots = {node for frame in frames for node in frame_members(frame)}
    _bend_between_frames(topology, layout, frames)
    return layout


def frame_members(frame: MachineFrame) -> tuple[int, ...]:
    """Ranks and switches of a frame."""
    return (*frame.ranks, *(node for parts in frame.parts.values() for node in parts.values()))


def frame_columns(frame: MachineFrame) -> int:
    """How many parts its widest row has."""
    return max(len(frame.ranks), *(len(parts) for parts in frame.parts.values()), 1)


def sort_machines(topology: Topology) -> tuple[list[MachineFrame], dict[str, list[int]]] | None:
    """Frames and tiers that the names speak of."""
    if not topology.switch_names:
        return None
    frames: dict[str, MachineFrame] = {}
    tiers: dict[str, list[int]] = {}
    frame_of: dict[int, MachineFrame] = {}
    for number, name in enumerate(topology.switch_names):
        match, node = _NAME.match(name), topology.ranks + number
        if match is None or match[1] is None:
            role = match[2] if match is not None else ""
            tiers.setdefault(role if role in TIERS else _UNKNOWN, []).append(node)
            continue
        if match[2] not in ROLES:
            return None
        frame = frames.setdefault(match[1], MachineFrame(_NUMBERED.sub(r"\1 \2", match[1])))
        if frame.parts.setdefault(match[2], {}).setdefault(int(match[3] or 0), node) != node:
            return None
        frame_of[node] = frame
    for rank in range(topology.ranks):
        home = next((frame_of[node] for node in topology.neighbours[rank] if node in frame_of), None)
        if home is None:
            return None
        home.ranks.append(rank)
    if _UNKNOWN in tiers:
        tiers = _tiers_by_distance(topology, [*range(topology.ranks), *frame_of])
    return [frame for frame in frames.values() if frame.ranks], tiers


def _tiers_by_distance(topology: Topology, inside: list[int]) -> dict[str, list[int]]:
    """Switches in no frame by how far they are from the frames; what is further than a core is with them."""
    tiers: dict[str, list[int]] = {}
    seen, ring = set(inside), inside
    for height in range(topology.switches):
        ring = sorted({b for a in ring for b in topology.neighbours[a]} - seen)
        seen.update(ring)
        tiers.setdefault(TIERS[min(height, len(TIERS) - 1)], []).extend(ring)
        if not ring:
            break
    lost = [node for node in range(topology.ranks, topology.nodes) if node not in seen]
    tiers.setdefault(TIERS[0], []).extend(lost)
    return {role: nodes for role, nodes in tiers.items() if nodes}


def place_frame(
    topology: Topology, layout: Layout, frame: MachineFrame, x: float, step: float, rise: float
) -> float:
    """Place the parts of a frame and draw it; return how high it reaches."""
    columns = frame_columns(frame)
    _spread(layout, dict(enumerate(frame.ranks)), x, 0.0, columns, step)
    below = 0.0
    for role in ("nvswitch", "switch"):
        if role in frame.parts:
            _spread(layout, frame.parts[role], x, max(1.4 * rise, 0.07 * columns * step), columns, step)
    ranks = set(frame.ranks)
    for a in frame.ranks:
        for b in topology.neighbours[a]:
            if b in ranks and a < b:
                distance = abs(layout.at[a][0] - layout.at[b][0])
                layout.bend[a, b] = -(0.16 * distance + 0.25 * step)
                below = max(below, 0.13 * distance + 0.25 * step)
    y = 0.0
    for role in _ROWS:
        if role in frame.parts:
            y -= rise
            _spread(layout, frame.parts[role], x, y, columns, step)
    pad = 0.6 * step if layout.dot else 0.0
    room = below + _TITLE
    layout.boxes.append(Box(frame.title, frame_members(frame), room, pad, frame.stands_for))
    return y


def _spread(layout: Layout, parts: dict[int, int], x: float, y: float, columns: int, step: float) -> None:
    """Put the parts of one row at even distances, each at the place that its number has."""
    count = max(parts) + 1
    for number, node in parts.items():
        layout.at[node] = (x + ((number + 0.5) * columns / count - 0.5) * step, y)


def _place_tiers(layout: Layout, tiers: dict[str, list[int]], width: float, top: float) -> None:
    rise = max(78.0, 0.075 * width)
    y = top - 20.0
    for role in TIERS:
        if role in tiers:
            y -= rise
            nodes = tiers[role]
            span = max(width * (0.96 if role == "leaf" else 0.8), 60.0 * len(nodes))
            for index, node in enumerate(nodes):
                layout.at[node] = (width / 2 + span * ((index + 0.5) / len(nodes) - 0.5), y)


def _bend_between_frames(topology: Topology, layout: Layout, frames: list[MachineFrame]) -> None:
    """Bow the cables between switches of different groups, which stand in one row, above it."""
    owner = {node: number for number, frame in enumerate(frames) for node in frame_members(frame)}
    for a, number in owner.items():
        for b in topology.neighbours[a]:
            if a < b and owner.get(b, number) != number:
                distance = layout.at[b][0] - layout.at[a][0]
                layout.bend[a, b] = 0.2 * distance + 18.0
