"""Single things of a drawing in its style: nodes, cables, and the speeds beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from weft.svg import Markup, element, hint, join, label
from weft.topology.drawing_style import speed_text
from weft.topology.line_shapes import arrow_data, draw_course, path_data, point_along
from weft.topology.machine_layout import role_of, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.topology.graph import Topology
    from weft.topology.layout import Layout

    Cables = dict[tuple[int, int], list["Lane"]]

LABELLED_CABLES: Final = 14
"""A drawing of more cables than this names the speed of the slowest alone."""

LOADS: Final = 6
"""Looks of links that carry something or nothing: idle, and five shares of the largest load."""

_TRIED_LABELS: Final = 64
_LETTER: Final = 6.2
_LANES: Final = 4
_MANY_CABLES: Final = 300
_SPEEDS: Final = 5
_LOOKS: Final = {"nvswitch": "near", "pcie": "bus", "grace": "bus", "cpu": "cpu", "nic": "nic"}


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of a cable: `way` is 0 where both directions are alike, 1 from low to high node, -1 back."""

    way: int
    count: int
    bandwidth: int
    load: float


class _Label(NamedTuple):
    """A text element, and whether it covers no node."""

    text: Markup
    clear: bool


class Pen:
    """Draws single things in the style of one drawing.

    Parameters
    ----------
    topology, layout
        What is drawn, and where its nodes are.
    most
        The largest load of a link; None where lines show speeds instead.
    cables
        How many are drawn: many are thinner.
    """

    def __init__(self, topology: Topology, layout: Layout, most: float | None, *, cables: int) -> None:
        self.topology = topology
        self.layout = layout
        self.most = None if most is None else max(most, 1e-300)
        crowd = 1.0 if cables <= 60 else 0.75 if cables <= _MANY_CABLES else 0.45
        self.thin = crowd * (0.5 if layout.radius < 6 else 1.0)
        # Speeds that differ by less than eight times use less than the whole range of looks.
        low, high = math.log(int(topology.bandwidth.min())), math.log(int(topology.bandwidth.max()))
        self.span = max(high - low, math.log(8))
        self.slowest = (low + high - self.span) / 2
        self.opacity = 0.75 if cables > _MANY_CABLES else 1.0
        self.hosts = {rank: number for number, host in enumerate(topology.hosts) for rank in host}

    def fastness(self, bandwidth: int) -> float:
        """Place of a speed between the slowest (0) and the fastest (1) look."""
        return (math.log(bandwidth) - self.slowest) / self.span

    def look(self, lane: Lane) -> tuple[str, float]:
        """Class and thickness of a line."""
        width = (1.4 + 3.4 * self.fastness(lane.bandwidth)) * self.thin
        if self.most is None:
            return f"s{round(self.fastness(lane.bandwidth) * (_SPEEDS - 1))}", width
        step = 1 + min(int((LOADS - 1) * lane.load / self.most * 0.999999), LOADS - 2)
        return f"l{step if lane.load > 0 else 0}", width

    def links(self, cables: Cables) -> Iterator[Markup]:
        """Lines of one look share one element, so that large drawings stay small; busy ones come last."""
        paths: dict[tuple[bool, str, float], list[str]] = {}
        arrows: list[tuple[str, str]] = []
        for (a, b), lanes in cables.items():
            lightly = self.layout.faint and (a, b) in self.layout.bend
            for lane, offset in self.lines(lanes):
                kind, width = self.look(lane)
                points = draw_course(self.layout, a, b, offset)
                paths.setdefault((not lightly, kind, round(width, 2)), []).append(path_data(points))
                if lane.way:
                    size = (3.2 + width) * max(self.thin, 0.6)
                    arrows.append((kind, arrow_data(points, lane.way, size)))
        for boldly, kind, width in sorted(paths):
            thickness, opacity = (width, 1.0) if boldly else (0.7 * width, 0.4)
            data = "".join(paths[boldly, kind, width])
            look = {"stroke_width": thickness, "opacity": opacity * self.opacity}
            yield element("path", class_=f"link {kind}", **look, d=data)
        if len(cables) > _MANY_CABLES:
            arrows = [
                (look, "".join(d for kind, d in arrows if kind == look))
                for look in sorted({kind for kind, _ in arrows})
            ]
        yield from (element("path", class_=f"arrow {kind}", d=data) for kind, data in arrows)

    def lines(self, lanes: list[Lane]) -> list[tuple[Lane, float]]:
        """Every line of a cable, with its distance from the middle."""
        lines = [lane for lane in lanes for _ in range(min(lane.count, _LANES))]
        apart = max(5.5 * self.thin, *(self.look(lane)[1] + 2.2 * self.thin for lane in lanes))
        return [(lane, (index - (len(lines) - 1) / 2) * apart) for index, lane in enumerate(lines)]

    def node(self, node: int) -> Markup:
        """Draw a circle or square with its number or name, and more when the mouse rests on it."""
        topology = self.topology
        radius = self.layout.dot if node in self.layout.dots else self.layout.radius
        x, y = self.layout.at[node]
        name = topology.node_name(node) if node < topology.ranks else short_name(topology.node_name(node))
        size = radius * (0.82 if len(name) < 3 else 0.68 if len(name) < 4 else 0.55)
        named = node >= topology.ranks and bool(topology.switch_names)
        if named and node not in self.layout.dots:
            size = 9.5
        shape = self.shape(node, radius, 0.29 * size * len(name) + 4.0 if named else 0.0)
        if not self.layout.labels or node in self.layout.dots:
            return element("g", shape, hint(self.describe(node))) if named else shape
        kind = "number" if node < topology.ranks else "switch-number"
        old = topology.rank_labels[node] if topology.rank_labels and node < topology.ranks else node
        lift = size * 0.36 if old == node else -size * 0.02
        words = [label(name, x, y + lift, kind, font_size=size)]
        if old != node:
            words.append(label(f"({old})", x, y + size * 0.82, kind, font_size=size * 0.68, opacity=0.8))
        return element("g", shape, *words, hint(self.describe(node)))

    def shape(self, node: int, radius: float, half: float) -> Markup:
        """Circle or square of a node; `half` is the least half width of one with a name."""
        x, y = self.layout.at[node]
        edge = max(radius * 0.12, 0.8)
        if node < self.topology.ranks:
            return element("circle", class_="rank", cx=x, cy=y, r=radius, stroke_width=edge)
        side = radius * (0.7 if half and node not in self.layout.dots else 0.95)
        wide = max(side, half) if node not in self.layout.dots else side
        size = {"width": 2 * wide, "height": 2 * side, "rx": radius * 0.3, "stroke_width": edge}
        return element("rect", class_=node_class(self.topology, node), x=x - wide, y=y - side, **size)

    def describe(self, node: int) -> str:
        """What a node is, where it is, and how fast it is joined."""
        topology = self.topology
        kind = "rank" if node < topology.ranks else "switch"
        words = [f"{kind} {topology.node_name(node)}"]
        if not topology.neighbours[node]:
            words.append("failed")
        if topology.rank_labels and node < topology.ranks:
            words.append(f"was rank {topology.rank_labels[node]}")
        if node in self.hosts:
            words.append(f"host {self.hosts[node]}")
        words.append(f"{speed_text(topology.egress(node))} out, {speed_text(topology.ingress(node))} in")
        return ", ".join(words)

    def speeds(self, cables: Cables) -> Iterator[Markup]:
        """Speeds of cables, in a small drawing of all whose lines are long enough, and always of the slowest.

        Where several are the slowest, one of the longest has the label, where it covers no node if possible.
        """
        least = min(lane.bandwidth for lanes in cables.values() for lane in lanes)
        slowest = [ends for ends, lanes in cables.items() if any(lane.bandwidth == least for lane in lanes)]
        slowest.sort(key=lambda ends: -self.length(ends))
        if len(cables) > LABELLED_CABLES:
            labels = (self.label(ends, cables[ends], least) for ends in slowest[:_TRIED_LABELS])
            first, *others = (label for label in labels if label is not None)
            yield next((label for label in (first, *others) if label.clear), first).text
            return
        for ends, lanes in cables.items():
            for lane in lanes:
                always = ends == slowest[0] and lane.bandwidth == least
                found = self.label(ends, lanes, lane.bandwidth, lane, always=always)
                if found is not None:
                    yield found.text

    def length(self, ends: tuple[int, int]) -> float:
        """How far the ends of a cable are apart."""
        return math.dist(self.layout.at[ends[0]], self.layout.at[ends[1]])

    def label(
        self,
        ends: tuple[int, int],
        lanes: list[Lane],
        bandwidth: int,
        lane: Lane | None = None,
        *,
        always: bool = True,
    ) -> _Label | None:
        """Speed of one line of a cable, along it if there is room, else above it if it has to be there.

        Without `lane` it is the only label of the drawing, which says so.
        """
        alone = lane is None
        lane = lane or next(one for one in lanes if one.bandwidth == bandwidth)
        a, b = ends
        lines = self.lines(lanes)
        x, y, angle = point_along(draw_course(self.layout, a, b), 0.44 if lanes[0].way > 0 else 0.5)
        upright = -90 < angle <= 90
        room = self.length(ends) - 2.4 * self.layout.radius
        times = f" x {lane.count}" if lane.count > 1 else ""
        text = f"{self.ways(a, b, lane)}{speed_text(lane.bandwidth)}{times}"
        if alone and _LETTER * len(f"slowest: {text}") <= room:
            text = f"slowest: {text}"
        edge = lines[-1][1] + 11
        side = 0.0 if alone or len(lines) == 1 else -edge if lane is lanes[-1] else edge
        turn, half = angle if upright else angle + 180, _LETTER * len(text) / 2
        dy = 4 + (side if upright else -side)
        if 2 * half > room:
            if not always:
                return None
            turn, dy = 0.0, -8.0
        place = f"translate({x:.1f} {y:.1f}) rotate({turn:.1f})"
        words = label(text, 0, dy, "speed", transform=place)
        return _Label(words, self.is_clear(x, y, math.radians(turn), half))

    def is_clear(self, x: float, y: float, turn: float, half: float) -> bool:
        """Whether a text around a point covers no node."""
        along = np.linspace(-half, half, 9)[:, None]
        points = np.array([x, y]) + along * np.array([math.cos(turn), math.sin(turn)])
        places = [self.layout.at[node] for node in self.layout.drawn(self.topology)]
        apart = points[:, None, :] - np.array(places)[None, :, :]
        return bool((np.hypot(apart[..., 0], apart[..., 1]) > self.layout.radius + 6).all())

    def ways(self, a: int, b: int, lane: Lane) -> str:
        """From which node to which a line leads, where its two directions differ."""
        low, high = self.topology.node_name(a), self.topology.node_name(b)
        return "" if not lane.way else f"{low} → {high}: " if lane.way > 0 else f"{high} → {low}: "


def node_class(topology: Topology, node: int) -> str:
    """Class of a switch in a drawing: what it is as far as its name says, and whether it failed."""
    if not topology.neighbours[node]:
        return "switch failed"
    role = role_of(topology.node_name(node)) if topology.switch_names else None
    return f"switch {_LOOKS[role]}" if role in _LOOKS else "switch"


def draw_boxes(layout: Layout) -> Markup:
    """Frames with their titles; those that stand for several have others behind them."""
    parts = []
    for box in layout.boxes:
        x0, y0, x1, y1 = layout.frame(box)
        for back in (2, 1, 0) if box.stands_for > 1 else (0,):
            shift, size = 5.0 * back, {"width": x1 - x0, "height": y1 - y0}
            parts.append(element("rect", class_="box", x=x0 + shift, y=y0 - shift, **size, rx=10))
        if layout.labels:
            parts.append(label(box.label, x0 + 8, y1 - 7 if box.below else y0 + 15))
    return join(parts, "\n")
