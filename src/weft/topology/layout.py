"""Where each node of a drawing goes.

Grids look like grids: lines, planes, oblique stacks of planes; hypercubes like their shadow. Switched
networks stand in tiers, ranks at the bottom under the switch they hang on; two fully wired halves face each
other; routers that all carry ranks stand in a circle. Whatever is left is a circle.

Distances are pixels of the finished drawing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from weft.errors import InputError
from weft.topology.spec_parser import is_spec, parse_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weft.topology.graph import Grid, Topology

LABELLED_NODES: Final = 300
"""Drawings of more nodes than this have dots instead of numbers."""

_WIDE: Final = 1320


@dataclass(frozen=True, slots=True)
class Box:
    """A frame around nodes."""

    label: str
    nodes: tuple[int, ...]
    below: float = 0.0
    """Room for what is drawn below the nodes, the title among it if there is any; else that is above them."""
    pad: float = 0.0
    """Room on all sides; 0 for the usual."""
    stands_for: int = 1
    """How many alike there are, of which it is the one that is drawn."""


@dataclass(frozen=True, slots=True)
class LayoutNote:
    """Words at a place of a drawing; `strong` ones are headings."""

    x: float
    y: float
    text: str
    strong: bool = False


@dataclass
class Layout:
    """Positions of all nodes.

    `bend` has, for pairs of nodes whose cable should not be straight, how far it bows to the left of the way
    from the lower to the higher node; `faint` draws those more lightly. The nodes in `dots` have the radius
    `dot` and no name.

    Where some nodes stand for all, `nodes` are those that are drawn, `notes` say what they stand for, `gaps`
    are lines across what is left out, and `link_kinds` has a number for each link that is the same for links
    which one line stands for.
    """

    at: list[tuple[float, float]]
    radius: float = 17
    labels: bool = True
    bend: dict[tuple[int, int], float] = field(default_factory=dict)
    boxes: list[Box] = field(default_factory=list)
    faint: bool = False
    dots: set[int] = field(default_factory=set)
    dot: float = 0.0
    nodes: list[int] | None = None
    notes: list[LayoutNote] = field(default_factory=list)
    gaps: list[tuple[float, float, float, float]] = field(default_factory=list)
    link_kinds: NDArray[np.int64] | None = None

    def drawn(self, topology: Topology) -> list[int]:
        """The nodes that are drawn, ascending."""
        return list(range(topology.nodes)) if self.nodes is None else self.nodes

    def frame(self, box: Box) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of a box, with room for its title."""
        xs, ys = zip(*(self.at[node] for node in box.nodes), strict=True)
        pad, title = box.pad or 1.5 * self.radius, 14 if self.labels and not box.below else 0
        return min(xs) - pad, min(ys) - pad - title, max(xs) + pad, max(ys) + pad + box.below


def lay_out(topology: Topology) -> Layout:
    """Choose positions that show what kind of network it is.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> [(round(x), round(y)) for x, y in lay_out(load_topology("mesh:2x2")).at]
    [(0, 0), (78, 0), (0, 78), (78, 78)]
    """
    from weft.topology.machine_layout import lay_out_machines

    machines = lay_out_machines(topology)
    if machines is not None:
        return machines
    labels = topology.nodes <= LABELLED_NODES
    radius = 17.0 if topology.nodes <= 48 else 13.0 if labels else 4.0
    before = _before_failure(topology)
    if topology.grid is not None:
        layout = place_grid(topology.grid.shape, topology.grid.wrap, radius)
    elif before is not None:
        layout = _with_holes(place_grid(before.shape, before.wrap, radius), topology.rank_labels)
    elif topology.switches:
        layout = _switched(topology, radius)
    else:
        layout = Layout(_circle(topology.ranks, radius), radius)
    layout.labels = labels
    return layout


def _before_failure(topology: Topology) -> Grid | None:
    """Grid that a spec names and that lost some of its ranks: what is left still looks best there."""
    if not topology.rank_labels or topology.switches or not is_spec(topology.name):
        return None
    try:
        whole = parse_spec(topology.name.split("+", 1)[0])
    except InputError:
        return None
    return whole.grid if max(topology.rank_labels) < whole.ranks <= 2 * topology.ranks else None


def _with_holes(whole: Layout, labels: Sequence[int]) -> Layout:
    number = {label: rank for rank, label in enumerate(labels)}
    bend = {(number[a], number[b]): bow for (a, b), bow in whole.bend.items() if a in number and b in number}
    return Layout([whole.at[label] for label in labels], whole.radius, bend=bend, faint=whole.faint)


def _circle(count: int, radius: float) -> list[tuple[float, float]]:
    reach = max(3.6 * radius * count / math.tau, 6.5 * radius)
    turns = [math.tau * k / count - math.pi / 2 for k in range(count)]
    return [(reach * math.cos(turn), reach * math.sin(turn)) for turn in turns]


def place_grid(shape: tuple[int, ...], wrap: tuple[bool, ...], radius: float) -> Layout:
    """Rows and columns, oblique stacks of them, or a circle for one dimension that is closed."""
    sizes = [size for size in shape if size > 1]
    closed = [bent for size, bent in zip(shape, wrap, strict=True) if size > 1]
    count = math.prod(shape)
    if len(sizes) <= 1 and (any(closed) or count > 24):
        return Layout(_circle(count, radius), radius)
    if len(sizes) >= 4 and set(sizes) == {2}:
        return Layout(_shadow(len(sizes), radius), radius)
    steps, bows = _grid_steps(sizes, radius)
    coordinates = np.transpose(np.unravel_index(np.arange(count), sizes))
    at = [(float(x), float(y)) for x, y in coordinates @ np.array(steps[::-1])]
    layout = Layout(at, radius if len(sizes) < 3 else min(radius, 13.0), faint=len(sizes) > 2)
    stride = 1
    for size, bent, bow in zip(reversed(sizes), reversed(closed), bows, strict=True):
        for rank in range(count):
            if bent and size > 2 and rank // stride % size == 0:
                layout.bend[rank, rank + (size - 1) * stride] = bow
        stride *= size
    return layout


def _grid_steps(sizes: Sequence[int], radius: float) -> tuple[list[tuple[float, float]], list[float]]:
    """Step of each dimension, the last first, and how far the cable that closes it bows."""
    step = max(4.6 * radius, 12.0) if radius > 13 else 4.2 * radius
    flat = list(reversed(sizes))
    if len(flat) <= 2:
        return [(step, 0.0), (0.0, step)][: len(flat)], [0.42 * step, -0.42 * step][: len(flat)]
    depth = flat[2]
    lean_x, lean_y = 2.2 * min(radius, 13.0), 1.7 * min(radius, 13.0)
    across, down = depth * lean_x + 2.2 * radius, depth * lean_y + 2.6 * radius
    steps = [(across, 0.0), (0.0, down), (lean_x, -lean_y)]
    bows = [0.22 * down, -0.2 * across, 0.5 * lean_x]
    width = flat[0] * across + 2 * radius
    height = flat[1] * down + 2 * radius
    for axis, size in enumerate(flat[3:]):
        if axis % 2 == 0:
            steps.append((width, 0.0))
            width *= size
        else:
            steps.append((0.0, height))
            height *= size
        bows.append(2.0 * radius)
    return steps, bows


def _shadow(dimensions: int, radius: float) -> list[tuple[float, float]]:
    """Project a hypercube on a plane, each dimension in its own direction.

    With equal lengths corners can fall on one another: the lengths that keep them furthest apart are sought.
    """
    bits = (np.arange(2**dimensions)[:, None] >> np.arange(dimensions)) & 1
    turns = math.pi * (np.arange(dimensions) + 0.5) / dimensions
    directions = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    best, apart = bits @ directions, 0.0
    for stretch in np.linspace(0.0, 1.2, 49 if dimensions <= 8 else 2):
        lengths = 1 + stretch * np.arange(dimensions) / (dimensions - 1)
        at = bits @ (directions * lengths[:, None])
        distance = np.hypot(*(at[:, None, :] - at[None, :, :]).transpose(2, 0, 1)) + np.eye(len(at)) * 1e9
        spread = float(distance.min()) / float(np.ptp(at, axis=0).max())
        if spread > apart:
            best, apart = at / distance.min(), spread
    scale = min(2.9 * radius, 1100 / float(np.ptp(best, axis=0).max()))
    return [(float(x), float(y)) for x, y in best * scale]


@dataclass
class RankTree:
    """How ranks hang on switches."""

    home: list[int]
    members: dict[int, list[int]]
    level: dict[int, int]
    joined: set[tuple[int, int]]


def hang_ranks(topology: Topology) -> RankTree:
    """Find the switch that is nearest to each rank, and how far above it the others are."""
    joined = {(node, other) for node in range(topology.nodes) for other in topology.neighbours[node]}
    joined |= {(b, a) for a, b in joined}
    near: list[list[int]] = [[] for _ in range(topology.nodes)]
    for a, b in sorted(joined):
        near[a].append(b)
    carried = {
        switch: sum(node < topology.ranks for node in near[switch])
        for switch in range(topology.ranks, topology.nodes)
    }
    home, members = [], dict[int, list[int]]()
    for rank in range(topology.ranks):
        above = [node for node in near[rank] if node >= topology.ranks]
        home.append(min(above, key=lambda switch: (carried[switch], switch)) if above else -1)
        members.setdefault(home[-1], []).append(rank)
    level = dict.fromkeys((switch for switch in members if switch >= 0), 1)
    frontier, height = [*level, *range(topology.ranks)], 2
    while frontier:
        fresh = {b for a in frontier for b in near[a] if b >= topology.ranks and b not in level}
        level.update(dict.fromkeys(fresh, height))
        frontier, height = sorted(fresh), height + 1
    for switch in range(topology.ranks, topology.nodes):
        level.setdefault(switch, height)
    return RankTree(home, members, level, joined)


def _switched(topology: Topology, radius: float) -> Layout:
    tree = hang_ranks(topology)
    flat = set(tree.level.values()) == {1} and -1 not in tree.members
    if flat and topology.switches > (4 if len(topology.hosts) > 1 else 2):
        halves = _halves(tree)
        if halves is not None:
            return _facing(topology, tree, halves, radius)
        return _routers(topology, tree, radius)
    return _tiers(topology, tree, radius)


def _columns(groups: Sequence[Sequence[int]], step: float, gap: float) -> list[int]:
    """How many ranks of each group stand side by side, in as few rows as fit."""
    columns = [len(group) for group in groups]
    for rows in range(2, math.isqrt(max(columns)) + 2):
        if (sum(columns) - len(groups)) * step + (len(groups) - 1) * (step + gap) <= _WIDE:
            break
        columns = [math.ceil(len(group) / rows) for group in groups]
    return columns


def _place_ranks(
    layout: Layout, groups: Sequence[Sequence[int]], top: float, direction: int, *, roomy: bool = False
) -> tuple[list[float], float]:
    """Put groups side by side, each in rows; returns the middle of each, and the width of all."""
    step = (2.7 if layout.radius > 4 else 3.0) * layout.radius * (1.35 if roomy else 1.0)
    gap = 0.8 * step
    columns = _columns(groups, step, gap)
    middles, x = [], 0.0
    for group, across in zip(groups, columns, strict=True):
        width = (across - 1) * step
        staggered = len(group) > across
        for index, rank in enumerate(group):
            row, column = divmod(index, across)
            shift = step / 2 if row % 2 else 0.0
            layout.at[rank] = (x + column * step + shift, top + direction * row * 0.95 * step)
        middles.append(x + (width + (step / 2 if staggered else 0)) / 2)
        x += width + step + gap + (step / 2 if staggered else 0)
    return middles, x - step - gap


def _tiers(topology: Topology, tree: RankTree, radius: float) -> Layout:
    """Put ranks below the switch they hang on, and the other switches above.

    Where ranks reach those themselves, the switch they hang on goes below them instead.
    """
    layout = Layout([(0.0, 0.0)] * topology.nodes, radius)
    homes = [switch for switch in tree.members if switch >= 0]
    groups = [tree.members[switch] for switch in tree.members]
    direct = any(a < topology.ranks and b < topology.ranks for a, b in tree.joined)
    roomy = direct or _share_a_switch(topology, groups)
    middles, width = _place_ranks(layout, groups, 0.0, 1, roomy=roomy)
    depth = max(y for _, y in layout.at)
    between = any(tree.level[b] > 1 for a, b in tree.joined if a < topology.ranks <= b)
    rise = max(5.2 * radius, 40.0) + width * 0.03
    for middle, switch in zip(middles, tree.members, strict=True):
        if switch >= 0:
            layout.at[switch] = (middle, depth + rise * 0.8 if between else -rise)
    top = max(tree.level.values(), default=1)
    for height in range(2, top + 1):
        tier = sorted(switch for switch, level in tree.level.items() if level == height)
        y = -rise * (height - (1 if between else 0)) - (height - 1) * 0.15 * rise
        spread = max(width, 4.0 * radius * len(tier))
        for index, switch in enumerate(tier):
            layout.at[switch] = (width / 2 + spread * ((index + 0.5) / len(tier) - 0.5), y)
    _bend_between_ranks(topology, tree, layout)
    _frame_hosts(topology, tree, layout, homes)
    return layout


def _bend_between_ranks(topology: Topology, tree: RankTree, layout: Layout) -> None:
    """Bow cables that would otherwise run through the nodes of a row."""
    rows: dict[int, list[float]] = {}
    for x, y in layout.at:
        rows.setdefault(round(y), []).append(x)
    for a, b in tree.joined:
        (xa, ya), (xb, yb) = layout.at[a], layout.at[b]
        if a > b or round(ya) != round(yb):
            continue
        if any(min(xa, xb) + 1 < x < max(xa, xb) - 1 for x in rows[round(ya)]):
            bow = min(0.25 * abs(xa - xb), 3.5 * layout.radius)
            layout.bend[a, b] = -bow if (xb > xa) == (a < topology.ranks) else bow


def _frame_hosts(topology: Topology, tree: RankTree, layout: Layout, homes: Sequence[int]) -> None:
    """Draw a box around each machine, with the switches that only it uses."""
    if len(topology.hosts) < 2:
        return
    host_of = {rank: number for number, host in enumerate(topology.hosts) for rank in host}
    own: list[list[int]] = [[] for _ in topology.hosts]
    for switch in homes:
        users = {host_of[rank] for rank in tree.members[switch]}
        if len(users) == 1:
            own[users.pop()].append(switch)
    boxes = [Box(f"host {number}", (*host, *own[number])) for number, host in enumerate(topology.hosts)]
    # Boxes that run into each other, or around one rank each, would tell less than none.
    if not _overlap([layout.frame(box) for box in boxes]) and any(len(box.nodes) > 1 for box in boxes):
        layout.boxes += boxes


def _share_a_switch(topology: Topology, groups: Sequence[Sequence[int]]) -> bool:
    """Whether ranks of several machines hang side by side on one switch."""
    host_of = {rank: number for number, host in enumerate(topology.hosts) for rank in host}
    return len(topology.hosts) > 1 and any(len({host_of[rank] for rank in group}) > 1 for group in groups)


def _overlap(frames: Sequence[tuple[float, float, float, float]]) -> bool:
    left, top, right, bottom = np.array(frames).T[:, :, None]
    meet = (left < right.T) & (right > left.T) & (top < bottom.T) & (bottom > top.T)
    return int(meet.sum()) > len(frames)


def _halves(tree: RankTree) -> tuple[list[int], list[int]] | None:
    """Two sets of switches, each wired to all of the other and to none of its own."""
    switches = sorted(tree.level)
    below = {switch for switch in switches if (switches[0], switch) in tree.joined}
    wires = [(a, b) for a, b in tree.joined if a in tree.level and b in tree.level]
    upper, lower = [s for s in switches if s not in below], [s for s in switches if s in below]
    if any((a in below) == (b in below) for a, b in wires) or len(wires) != 2 * len(upper) * len(lower):
        return None
    return (upper, lower) if lower else None


def _facing(topology: Topology, tree: RankTree, halves: tuple[list[int], list[int]], radius: float) -> Layout:
    layout = Layout([(0.0, 0.0)] * topology.nodes, radius)
    rise = max(5.0 * radius, 30.0)
    gap = rise + 0.12 * _WIDE if topology.nodes > 40 else 1.9 * rise
    for half, y, direction in ((halves[0], 0.0, -1), (halves[1], gap, 1)):
        groups = [tree.members[switch] for switch in half]
        middles, _ = _place_ranks(layout, groups, y + direction * rise, direction)
        for switch, middle in zip(half, middles, strict=True):
            layout.at[switch] = (middle, y)
    _frame_hosts(topology, tree, layout, [])
    return layout


def _routers(topology: Topology, tree: RankTree, radius: float) -> Layout:
    """Routers in a circle with their ranks outside; a gap where a group of fully joined ones ends."""
    layout = Layout([(0.0, 0.0)] * topology.nodes, radius)
    routers = sorted(tree.level)
    group = [routers[0]]
    gaps = []
    for router in routers[1:]:
        together = all((router, other) in tree.joined for other in group)
        gaps.append(0.0 if together else 0.9)
        group = [*group, router] if together else [router]
    gaps.append(0.9)
    slots = [max(len(tree.members[router]), 1.6) for router in routers]
    total = sum(slots) + sum(gaps)
    inner = max(4.4 * radius * total / (math.tau * min(slots)), 6 * radius)
    outer = max(inner + 4.6 * radius, 2.9 * radius * total / math.tau)
    turn = -math.pi / 2
    for router, slot, gap in zip(routers, slots, gaps, strict=True):
        span = math.tau * slot / total
        middle = turn + span / 2
        layout.at[router] = (inner * math.cos(middle), inner * math.sin(middle))
        ranks = tree.members[router]
        for index, rank in enumerate(ranks):
            angle = turn + span * (index + 0.5) / len(ranks)
            layout.at[rank] = (outer * math.cos(angle), outer * math.sin(angle))
        turn += span + math.tau * gap / total
    for a, b in tree.joined:
        # Cables past a neighbour would run through it: they bow towards the middle of the circle.
        apart = routers.index(b) - routers.index(a) if a in tree.level and b in tree.level else 0
        if 1 < apart < max(len(group), 2) and not any(gaps[routers.index(a) : routers.index(b)]):
            layout.bend[a, b] = -0.16 * math.dist(layout.at[a], layout.at[b])
    return layout
