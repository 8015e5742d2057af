"""Which nodes of a very large cluster are drawn, and what each of them stands for.

A picture of a thousand dots says less than one machine with "one of 128 alike" below it. Machines that have
the same parts with the same cables are one kind, and one of each kind is drawn; above them the switches that
they reach, tier by tier, with how many there are and how they are wired. Of a grid the corner is drawn, with
the last rank of each row and column behind a gap.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.topology.drawing_style import speed_text
from weft.topology.layout import Layout, LayoutNote, hang_ranks, place_grid
from weft.topology.machine_layout import (
    ROLES,
    TIERS,
    MachineFrame,
    frame_columns,
    frame_members,
    place_frame,
    sort_machines,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.topology.graph import Topology

MANY_NODES: Final = 600
"""Clusters of more nodes than this are drawn by representatives."""

_KINDS: Final = 3
_SWITCHES: Final = 16
_COLUMNS: Final = 16
_CORNER: Final = 3
_STEP: Final = 42.0
_RADIUS: Final = 13.0
_NOTE_LETTER: Final = 6.4


def lay_out_representatives(topology: Topology, *, loaded: bool = False) -> Layout | None:
    """Choose the nodes that stand for all, and their places.

    Parameters
    ----------
    topology
        What is drawn.
    loaded
        Whether links have loads of their own: a grid that can be drawn whole then is.

    Returns
    -------
    Layout or None
        None if the cluster is small, or has no parts that are alike.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> found = lay_out_representatives(load_topology("rails:128x8"))
    >>> found.boxes[0].label
    'host 0, one of 128 alike: 8 of 1,024 ranks'
    >>> lay_out_representatives(load_topology("rails:2x8")) is None
    True
    """
    if topology.nodes <= MANY_NODES:
        return None
    if topology.grid is not None:
        drawable = topology.nodes <= limits.MAX_DRAWN_NODES and topology.links <= 2 * limits.MAX_DRAWN_CABLES
        return None if drawable and (loaded or not _is_even(topology)) else _lay_out_corner(topology)
    found = sort_machines(topology) or _sort_by_switch(topology)
    return None if found is None else _Machines(topology, *found).lay_out()


def _is_even(topology: Topology) -> bool:
    """Whether all links of a grid are there and equal."""
    shape, wrap = topology.grid.shape, topology.grid.wrap  # type: ignore[union-attr]  # asked by the caller
    full = 0
    for size, closed in zip(shape, wrap, strict=True):
        full += 2 * topology.ranks // size * (size if closed and size > 2 else size - 1)
    alike = len(np.unique(topology.bandwidth)) == 1 == len(np.unique(topology.latency_ps))
    return alike and topology.links % full == 0


def _lay_out_corner(topology: Topology) -> Layout:
    """The first ranks of a grid in every dimension, and the last behind a gap."""
    assert topology.grid is not None
    shape, wrap = topology.grid.shape, topology.grid.wrap
    kept = [list(range(size)) if size <= _CORNER + 2 else [*range(_CORNER), size - 1] for size in shape]
    small = place_grid(tuple(map(len, kept)), wrap, _RADIUS if len(shape) > 2 else 17.0)
    ranks = [int(np.ravel_multi_index(place, shape)) for place in product(*kept)]
    layout = replace(small, at=[(0.0, 0.0)] * topology.nodes, nodes=sorted(ranks), labels=True)
    for place, rank in enumerate(ranks):
        layout.at[rank] = small.at[place]
    layout.bend = {(ranks[a], ranks[b]): bow for (a, b), bow in small.bend.items()}
    layout.dots = set()
    joined = {(a, b) for a in layout.nodes or [] for b in topology.neighbours[a]}
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        if len(kept[axis]) < shape[axis]:
            for place in range(len(ranks)):
                if place // stride % len(kept[axis]) == _CORNER - 1:
                    ends = ranks[place], ranks[place + stride]
                    layout.gaps += [(*layout.at[ends[0]], *layout.at[ends[1]])] if ends not in joined else []
        stride *= len(kept[axis])
    bottom, left = max(y for _, y in small.at), min(x for x, _ in small.at)
    grid = " x ".join(map(str, shape))
    words = f"corner of the grid of {grid} ranks; dotted: ranks that are left out"
    layout.notes = [LayoutNote(left - 17.0, bottom + 46.0, words)]
    difference = topology.link_dst.astype(np.int64) - topology.link_src
    layout.link_kinds = np.asarray(np.unique(difference, return_inverse=True)[1], np.int64)
    return layout


def _sort_by_switch(topology: Topology) -> tuple[list[MachineFrame], dict[str, list[int]]] | None:
    """Ranks on one switch as a frame, where names do not say what switches are."""
    if not topology.switches:
        return None
    tree = hang_ranks(topology)
    if -1 in tree.members:
        return None
    frames = [
        MachineFrame(f"ranks on {topology.node_name(switch)}", ranks)
        for switch, ranks in sorted(tree.members.items())
    ]
    tiers: dict[str, list[int]] = {}
    for switch, level in sorted(tree.level.items()):
        tiers.setdefault(TIERS[min(level, len(TIERS)) - 1], []).append(switch)
    return frames, tiers


@dataclass
class _Machines:
    """Machines and tiers of switches of a topology, on the way to a layout."""

    topology: Topology
    frames: list[MachineFrame]
    tiers: dict[str, list[int]]

    def lay_out(self) -> Layout:
        layout = Layout([(0.0, 0.0)] * self.topology.nodes, _RADIUS)
        kinds = self._kinds()
        by_kind = Counter(kinds)
        chosen = [kinds.index(kind) for kind, _ in by_kind.most_common(_KINDS)]
        drawn, x, top = list[int](), 0.0, 0.0
        for number in sorted(chosen):
            frame = self._representative(number, by_kind[kinds[number]])
            top = min(top, place_frame(self.topology, layout, frame, x, _STEP, 1.5 * _STEP))
            drawn += frame_members(frame)
            title = _NOTE_LETTER * len(frame.title) + 40.0
            x += max((frame_columns(frame) + 1.4) * _STEP, title)
        others = len(by_kind) - len(chosen)
        if others:
            hidden = sum(by_kind.values()) - sum(by_kind[kinds[number]] for number in chosen)
            words = f"and {units.count(others, 'other kind')} of machines, {hidden:,} in all"
            layout.notes.append(LayoutNote(x - 10.0, 0.0, words))
        drawn += self._place_tiers(layout, drawn, x - 1.4 * _STEP, top)
        layout.nodes = sorted(drawn)
        self._bow_within_tiers(layout)
        layout.link_kinds = self._link_kinds(kinds)
        return layout

    def _representative(self, number: int, count: int) -> MachineFrame:
        """The frame that is drawn, with the columns that fit, and a title that says what it stands for."""
        frame = self.frames[number]
        parts = {
            role: {place: node for place, node in nodes.items() if place < _COLUMNS}
            for role, nodes in frame.parts.items()
        }
        ranks = frame.ranks[:_COLUMNS]
        total = count * len(frame.ranks)
        shown = f"{len(ranks):,} of {units.count(total, 'rank')}" if total > len(ranks) else f"{total} ranks"
        alike = f", one of {count:,} alike" if count > 1 else ""
        return MachineFrame(f"{frame.title}{alike}: {shown}", ranks, parts, count)

    def _kinds(self) -> list[int]:
        """Number frames that are alike the same: those of the same parts and cables, by what these join."""
        name: dict[int, tuple[object, ...]] = {}
        for role, nodes in self.tiers.items():
            name.update(dict.fromkeys(nodes, (role,)))
        home: dict[int, int] = {}
        for number, frame in enumerate(self.frames):
            for node in frame_members(frame):
                home[node] = number
            name.update({rank: ("rank", place) for place, rank in enumerate(frame.ranks)})
            for role, parts in frame.parts.items():
                name.update({node: (role, place) for place, node in parts.items()})
        topology = self.topology
        wires: list[list[tuple[object, ...]]] = [[] for _ in self.frames]
        columns = (topology.link_src, topology.link_dst, topology.bandwidth, topology.latency_ps)
        for src, dst, speed, latency in zip(*(column.tolist() for column in columns), strict=True):
            for end in {home.get(src), home.get(dst)} - {None}:
                assert end is not None
                ends = [name[node] if home.get(node) in (end, None) else ("other",) for node in (src, dst)]
                wires[end].append((*ends, speed, latency))
        known: dict[tuple[object, ...], int] = {}
        found = []
        for frame, cables in zip(self.frames, wires, strict=True):
            inside = ((role, *sorted(nodes)) for role, nodes in sorted(frame.parts.items()))
            signature = (len(frame.ranks), *inside, *sorted(cables, key=repr))
            found.append(known.setdefault(signature, len(known)))
        return found

    def _place_tiers(self, layout: Layout, below: Sequence[int], width: float, top: float) -> list[int]:
        """Put the switches that are reached from below in rows, with words to the left of all."""
        drawn, reached, y = list[int](), set(below), top - 20.0
        rows: list[tuple[float, list[str]]] = []
        for role in TIERS:
            if role not in self.tiers:
                continue
            y -= max(92.0, 0.09 * width)
            nodes = self._reached(self.tiers[role], reached)
            reached |= set(nodes)
            drawn += nodes
            span = max(0.9 * width, 58.0 * len(nodes))
            for index, node in enumerate(nodes):
                layout.at[node] = (width / 2 + span * ((index + 0.5) / len(nodes) - 0.5), y)
            rows.append((y, self._words(role, len(nodes))))
        longest = max((len(text) for _, words in rows for text in words), default=0)
        column = min((layout.at[node][0] for node in drawn), default=0.0) - _NOTE_LETTER * longest - 50.0
        for y, words in rows:
            for line, text in enumerate(words):
                note = LayoutNote(column, y - 4.0 + 16.0 * line, text, strong=line == 0)
                layout.notes.append(note)
        return drawn

    def _reached(self, tier: Sequence[int], below: set[int]) -> list[int]:
        """Switches of a tier that are joined to what is drawn, then those that are joined to these."""
        near = self.topology.neighbours
        found = [node for node in tier if below & set(near[node])]
        for around in ([other for node in found for other in near[node]], tier):
            if len(found) < _SWITCHES // 2:
                known = set(found)
                found += sorted((set(around) & set(tier)) - known)[: _SWITCHES // 2 - len(found)]
        return sorted(sorted(found, key=lambda node: -len(below & set(near[node])))[:_SWITCHES])

    def _words(self, role: str, drawn: int) -> list[str]:
        """How many switches a tier has and, of most of them, how they are wired."""
        nodes = self.tiers[role]
        title = ROLES[role] if self.topology.switch_names else "switch"
        heading = units.count(len(nodes), title)
        if drawn < len(nodes):
            heading += f", {drawn} drawn"
        (common, times), *_ = Counter(self._wiring(node) for node in nodes).most_common(1)
        each = "each" if times == len(nodes) else f"{times:,} of them"
        return [heading, *(f"{each}: {count:,} x {speed_text(speed)} {way}" for way, speed, count in common)]

    def _wiring(self, switch: int) -> tuple[tuple[str, int, int], ...]:
        """Directions, speeds and numbers of the links that leave a switch."""
        here = self._height[switch]
        found: Counter[tuple[str, int]] = Counter()
        for dst, speed in self._outgoing.get(switch, []):
            there = self._height[dst]
            found["down" if there < here else "up" if there > here else "across", speed] += 1
        return tuple((way, speed, count) for (way, speed), count in sorted(found.items()))

    @cached_property
    def _height(self) -> NDArray[np.int64]:
        """Tier of each node; 0 is inside a machine."""
        height = np.zeros(self.topology.nodes, np.int64)
        for role, nodes in self.tiers.items():
            height[nodes] = 1 + TIERS.index(role)
        return height

    @cached_property
    def _outgoing(self) -> dict[int, list[tuple[int, int]]]:
        """Ends and speeds of the links that leave each switch of a tier."""
        topology = self.topology
        found: dict[int, list[tuple[int, int]]] = {}
        columns = (topology.link_src, topology.link_dst, topology.bandwidth)
        for src, dst, speed in zip(*(column.tolist() for column in columns), strict=True):
            if self._height[src]:
                found.setdefault(src, []).append((dst, speed))
        return found

    def _bow_within_tiers(self, layout: Layout) -> None:
        """Bow cables between switches that stand in one row, so that they pass no other."""
        drawn = set(layout.nodes or ())
        for nodes in self.tiers.values():
            row = {node for node in nodes if node in drawn}
            for a in row:
                for b in self.topology.neighbours[a]:
                    if b in row and a < b:
                        distance = layout.at[b][0] - layout.at[a][0]
                        layout.bend[a, b] = math.copysign(0.12 * abs(distance) + 8.0, distance)

    def _link_kinds(self, kinds: Sequence[int]) -> NDArray[np.int64]:
        """Number links that one line stands for alike: between the same parts of machines of one kind."""
        number: dict[object, int] = {}
        node_kind = np.zeros(self.topology.nodes, np.int64)
        for role, nodes in self.tiers.items():
            node_kind[nodes] = number.setdefault(role, len(number))
        for frame, kind in zip(self.frames, kinds, strict=True):
            parts = {"rank": dict(enumerate(frame.ranks)), **frame.parts}
            for role, places in parts.items():
                for place, node in places.items():
                    node_kind[node] = number.setdefault((kind, role, place), len(number))
        pairs = node_kind[self.topology.link_src] * len(number) + node_kind[self.topology.link_dst]
        return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int64)
