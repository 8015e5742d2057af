"""A topology as a self-contained SVG that reads well on light and on dark pages.

`weft.topology.layout` says where nodes go; here they become circles (ranks) and squares (switches), joined by
one line per cable. Thicker and bluer lines are faster; the two directions of a cable are drawn apart, with
arrows, only where they differ. With `load`, lines show how much each link carries instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.errors import InputError
from weft.topology.drawing_style import NAMESPACE, STYLE, clean_text, speed_text
from weft.topology.layout import Layout, lay_out
from weft.topology.line_shapes import arrow_data, draw_course, path_data, point_along
from weft.topology.machine_layout import ROLES, role_of, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from weft.topology.graph import Topology

    _Load = NDArray[np.float64] | None
    _Cables = dict[tuple[int, int], list["Lane"]]

_LABELLED_CABLES: Final = 14
_LANES: Final = 4
_SPEEDS: Final = 5
_LOADS: Final = 6
_LOOKS: Final = {"nvswitch": "near", "pcie": "bus", "grace": "bus", "cpu": "cpu", "nic": "nic"}
_MARGIN: Final = 30.0
_HEAD: Final = 62.0


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of a cable: `way` is 0 where both directions are alike, 1 from low to high node, -1 back."""

    way: int
    count: int
    bandwidth: int
    load: float


def draw_svg(topology: Topology, *, load: ArrayLike | None = None) -> str:
    """Draw a topology.

    Parameters
    ----------
    topology
        What to draw.
    load
        For each directed link, how much it carries, in any unit; colours the links.

    Returns
    -------
    str
        An SVG document.

    Examples
    --------
    >>> from weft.topology import load_topology
    >>> draw_svg(load_topology("ring:4")).startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    True
    """
    carried = _checked_load(topology, load)
    cables = _cables(topology, carried)
    body, width, height = "", 0.0, 0.0
    if topology.nodes <= limits.MAX_DRAWN_NODES and len(cables) <= limits.MAX_DRAWN_CABLES:
        layout = lay_out(topology)
        body, width, height = _picture(topology, layout, cables, carried)
    legend, legend_width, legend_height = _legend(topology, carried, room=max(width, 420.0))
    wide = max(width, legend_width, 380.0) + 2 * _MARGIN
    tall = _HEAD + height + legend_height + (_MARGIN if body else 0) + 8
    shift_x, shift_y = (wide - width) / 2, _HEAD + 4
    name, title = clean_text(topology.name), clean_text(topology.name, int((wide - 2 * _MARGIN) / 9))
    box = f'viewBox="0 0 {wide:.0f} {tall:.0f}" width="{wide:.0f}" height="{tall:.0f}"'
    parts = [
        f'<svg xmlns="{NAMESPACE}" class="weft-topology" role="img" {box} style="max-width:100%">',
        f"<title>{name}</title><style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{wide - 1:.0f}" height="{tall - 1:.0f}" rx="10"/>',
        f'<text class="title" x="{_MARGIN:.0f}" y="32">{title}</text>',
        f'<text class="note" x="{_MARGIN:.0f}" y="51">{_summary(topology, len(cables))}</text>',
        f'<g transform="translate({shift_x:.1f} {shift_y:.1f})">{body}</g>' if body else "",
        f'<g transform="translate({_MARGIN:.0f} {tall - legend_height:.1f})">{legend}</g>',
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _checked_load(topology: Topology, load: ArrayLike | None) -> _Load:
    if load is None:
        return None
    carried = np.asarray(load, np.float64)
    if carried.shape != (topology.links,) or not np.isfinite(carried).all() or (carried < 0).any():
        msg = f"{topology.name}: load must be one number of at least 0 for each of the {topology.links} links"
        raise InputError(msg)
    return carried


def _cables(topology: Topology, load: _Load) -> _Cables:
    """Lines to draw between each two nodes: one for all links alike, one for each direction otherwise."""
    found: dict[tuple[int, int], tuple[list[tuple[int, float]], list[tuple[int, float]]]] = {}
    carried = np.zeros(topology.links) if load is None else load
    columns = (topology.link_src, topology.link_dst, topology.bandwidth, carried)
    for src, dst, speed, weight in zip(*(column.tolist() for column in columns), strict=True):
        both = found.setdefault((min(src, dst), max(src, dst)), ([], []))
        both[src > dst].append((speed, weight))
    cables: _Cables = {}
    for pair, (there, back) in found.items():
        alike = sorted(there) == sorted(back)
        lanes = []
        for way, links in ((0, there),) if alike else ((1, there), (-1, back)):
            for speed in sorted({speed for speed, _ in links}):
                weights = [weight for other, weight in links if other == speed]
                lanes.append(Lane(way, len(weights), speed, max(weights)))
        cables[pair] = lanes
    return cables


def _picture(topology: Topology, layout: Layout, cables: _Cables, load: _Load) -> tuple[str, float, float]:
    """Boxes, links and nodes, moved so that everything is at 0 and above; and how much room they take."""
    pen = _Pen(topology, layout, load, cables=len(cables))
    boxes = [(box, *layout.frame(box)) for box in layout.boxes]
    pad = layout.radius + 6
    bows = [draw_course(layout, *pair) for pair in layout.bend if pair in cables]
    tips = [point_along(bow, 0.5) for bow in bows]
    xs = [x for x, _ in layout.at] + [tip[0] for tip in tips] + [x for box in boxes for x in (box[1], box[3])]
    ys = [y for _, y in layout.at] + [tip[1] for tip in tips] + [y for box in boxes for y in (box[2], box[4])]
    left, top = min(xs) - pad, min(ys) - pad
    width, height = max(xs) + pad - left, max(ys) + pad - top
    parts = [f'<g transform="translate({-left:.1f} {-top:.1f})">']
    for box, x0, y0, x1, y1 in boxes:
        size = f'width="{x1 - x0:.1f}" height="{y1 - y0:.1f}"'
        parts.append(f'<rect class="box" x="{x0:.1f}" y="{y0:.1f}" {size} rx="10"/>')
        if layout.labels:
            y = y1 - 7 if box.below else y0 + 15
            parts.append(f'<text class="note" x="{x0 + 8:.1f}" y="{y:.1f}">{clean_text(box.label)}</text>')
    parts += pen.links(cables)
    parts += [pen.node(node) for node in range(topology.nodes)]
    if len(cables) <= _LABELLED_CABLES and len(set(topology.bandwidth.tolist())) > 1:
        parts += pen.speeds(cables)
    return "\n".join([*parts, "</g>"]), width, height


class _Pen:
    """Draws single things in the style of one drawing."""

    def __init__(self, topology: Topology, layout: Layout, load: _Load, *, cables: int) -> None:
        self.topology = topology
        self.layout = layout
        self.most = None if load is None else max(float(load.max(initial=0.0)), 1e-300)
        crowd = 1.0 if cables <= 60 else 0.75 if cables <= 300 else 0.45
        self.thin = crowd * (0.5 if layout.radius < 6 else 1.0)
        # Speeds that differ by less than eight times use less than the whole range of looks.
        low, high = math.log(int(topology.bandwidth.min())), math.log(int(topology.bandwidth.max()))
        self.span = max(high - low, math.log(8))
        self.slowest = (low + high - self.span) / 2
        self.opacity = 0.75 if cables > 300 else 1.0
        self.hosts = {rank: number for number, host in enumerate(topology.hosts) for rank in host}

    def fastness(self, bandwidth: int) -> float:
        """Place of a speed between the slowest (0) and the fastest (1) look."""
        return (math.log(bandwidth) - self.slowest) / self.span

    def look(self, lane: Lane) -> tuple[str, float]:
        """Class and thickness of a line."""
        width = (1.4 + 3.4 * self.fastness(lane.bandwidth)) * self.thin
        if self.most is None:
            return f"s{round(self.fastness(lane.bandwidth) * (_SPEEDS - 1))}", width
        step = 1 + min(int((_LOADS - 1) * lane.load / self.most * 0.999999), _LOADS - 2)
        return f"l{step if lane.load > 0 else 0}", width

    def links(self, cables: _Cables) -> Iterator[str]:
        """Lines of one look share one element, so that large drawings stay small; busy ones come last."""
        paths: dict[tuple[bool, str, float], list[str]] = {}
        arrows: list[str] = []
        for (a, b), lanes in cables.items():
            lightly = self.layout.faint and (a, b) in self.layout.bend
            for lane, offset in self.lines(lanes):
                kind, width = self.look(lane)
                points = draw_course(self.layout, a, b, offset)
                paths.setdefault((not lightly, kind, round(width, 2)), []).append(path_data(points))
                if lane.way:
                    size = (3.2 + width) * max(self.thin, 0.6)
                    arrows.append(f'<path class="arrow {kind}" d="{arrow_data(points, lane.way, size)}"/>')
        for boldly, kind, width in sorted(paths):
            data = "".join(paths[boldly, kind, width])
            thickness, opacity = (width, 1.0) if boldly else (0.7 * width, 0.4)
            look = f'stroke-width="{thickness:.3g}" opacity="{opacity * self.opacity:g}"'
            yield f'<path class="link {kind}" {look} d="{data}"/>'
        yield from arrows

    def lines(self, lanes: list[Lane]) -> list[tuple[Lane, float]]:
        """Every line of a cable, with its distance from the middle."""
        lines = [lane for lane in lanes for _ in range(min(lane.count, _LANES))]
        apart = max(5.5 * self.thin, *(self.look(lane)[1] + 2.2 * self.thin for lane in lanes))
        return [(lane, (index - (len(lines) - 1) / 2) * apart) for index, lane in enumerate(lines)]

    def node(self, node: int) -> str:
        """Draw a circle or square with its number or name, and more when the mouse rests on it."""
        topology = self.topology
        radius = self.layout.dot if node in self.layout.dots else self.layout.radius
        x, y = self.layout.at[node]
        label = topology.node_name(node) if node < topology.ranks else short_name(topology.node_name(node))
        size = radius * (0.82 if len(label) < 3 else 0.68 if len(label) < 4 else 0.55)
        named = node >= topology.ranks and bool(topology.switch_names)
        if named and node not in self.layout.dots:
            size = 9.5
        shape = self.shape(node, radius, 0.29 * size * len(label) + 4.0 if named else 0.0)
        if not self.layout.labels or node in self.layout.dots:
            return f"<g>{shape}/><title>{self.describe(node)}</title></g>" if named else f"{shape}/>"
        kind = "number" if node < topology.ranks else "switch-number"
        old = topology.rank_labels[node] if topology.rank_labels and node < topology.ranks else node
        lift = size * 0.36 if old == node else -size * 0.02
        text = f'<text class="{kind}" x="{x:.1f}" y="{y + lift:.1f}" font-size="{size:.1f}">{label}</text>'
        if old != node:
            small = f'x="{x:.1f}" y="{y + size * 0.82:.1f}" font-size="{size * 0.68:.1f}" opacity="0.8"'
            text += f'<text class="{kind}" {small}>({old})</text>'
        return f"<g>{shape}/>{text}<title>{self.describe(node)}</title></g>"

    def shape(self, node: int, radius: float, half: float) -> str:
        """Start of the element of a node; `half` is the least half width of one with a name."""
        x, y = self.layout.at[node]
        edge = f'stroke-width="{max(radius * 0.12, 0.8):.1f}"'
        if node < self.topology.ranks:
            return f'<circle class="rank" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {edge}'
        side = radius * (0.7 if half and node not in self.layout.dots else 0.95)
        wide = max(side, half) if node not in self.layout.dots else side
        return (
            f'<rect class="{node_class(self.topology, node)}" x="{x - wide:.1f}" y="{y - side:.1f}" '
            f'width="{2 * wide:.1f}" height="{2 * side:.1f}" rx="{radius * 0.3:.1f}" {edge}'
        )

    def describe(self, node: int) -> str:
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
        return clean_text(", ".join(words))

    def speeds(self, cables: _Cables) -> Iterator[str]:
        """Speeds along the lines that are long enough: on a single line, beside several."""
        for (a, b), lanes in cables.items():
            lines = self.lines(lanes)
            x, y, angle = point_along(draw_course(self.layout, a, b), 0.44 if lanes[0].way > 0 else 0.5)
            upright = -90 < angle <= 90
            room = math.dist(self.layout.at[a], self.layout.at[b]) - 2.4 * self.layout.radius
            edge = lines[-1][1] + 11
            for lane in lanes:
                times = f" x {lane.count}" if lane.count > 1 else ""
                text = f"{self.ways(a, b, lane)}{speed_text(lane.bandwidth)}{times}"
                if 6.2 * len(text) > room:
                    continue
                side = 0.0 if len(lines) == 1 else -edge if lane is lanes[-1] else edge
                dy = 4 + (side if upright else -side)
                turn = f"translate({x:.1f} {y:.1f}) rotate({angle if upright else angle + 180:.1f})"
                yield f'<text class="speed" y="{dy:.1f}" transform="{turn}">{text}</text>'

    def ways(self, a: int, b: int, lane: Lane) -> str:
        low, high = self.topology.node_name(a), self.topology.node_name(b)
        return "" if not lane.way else f"{low} → {high}: " if lane.way > 0 else f"{high} → {low}: "


def node_class(topology: Topology, node: int) -> str:
    """Class of a switch in a drawing: what it is as far as its name says, and whether it failed."""
    if not topology.neighbours[node]:
        return "switch failed"
    role = role_of(topology.node_name(node)) if topology.switch_names else None
    return f"switch {_LOOKS[role]}" if role in _LOOKS else "switch"


def _switch_samples(topology: Topology) -> Iterator[tuple[str, str]]:
    """One sample for each sort of switch that is drawn, with what it is."""
    found = {node_class(topology, node): node for node in range(topology.ranks, topology.nodes)}
    words = {"switch": "switch", "switch failed": "failed, no link left"}
    for kind, node in sorted(found.items(), key=lambda item: (item[0] == "switch failed", item[0])):
        role = role_of(topology.node_name(node)) or ""
        sample = f'<rect class="{kind}" x="2" y="-11" width="14" height="14" rx="3"/>'
        yield sample, words.get(kind) or ROLES[role]


def _summary(topology: Topology, cables: int) -> str:
    words = [units.count(topology.ranks, "rank")]
    if topology.switches:
        words.append(units.count(topology.switches, "switch"))
    if len(topology.hosts) > 1:
        words.append(units.count(len(topology.hosts), "host"))
    words.append(f"{units.count(topology.links, 'link')} between {units.count(cables, 'pair')} of nodes")
    if topology.nodes > limits.MAX_DRAWN_NODES or cables > limits.MAX_DRAWN_CABLES:
        words.append("too large to draw")
    return " · ".join(words)


def _legend(topology: Topology, load: _Load, *, room: float) -> tuple[str, float, float]:
    """Lay samples with words beside them out in rows."""
    items: list[tuple[str, str]] = []
    if topology.nodes <= limits.MAX_DRAWN_NODES:
        renamed = " (its number before the failure)" if topology.rank_labels else ""
        items.append(('<circle class="rank" cx="9" cy="-4" r="7"/>', f"rank{renamed}"))
        items += _switch_samples(topology)
    if load is not None:
        most = float(load.max(initial=0.0))
        for step in range(_LOADS):
            text = "idle" if step == 0 else f"≤ {most * step / (_LOADS - 1):.3g}"
            items.append((f'<path class="link l{step}" stroke-width="4" d="M0 -4H20"/>', text))
    else:
        pen = _Pen(topology, Layout([]), None, cables=0)
        speeds, counts = np.unique(topology.bandwidth, return_counts=True)
        shown = list(zip(speeds.tolist(), counts.tolist(), strict=True))[::-1]
        for speed, count in shown if len(shown) <= 6 else [*shown[:3], *shown[-2:]]:
            kind, width = pen.look(Lane(0, 1, speed, 0.0))
            sample = f'<path class="link {kind}" stroke-width="{width:.2f}" d="M0 -4H20"/>'
            items.append((sample, f"{speed_text(speed)}, {units.count(count, 'link')}"))
        if len(shown) > 6:
            items.append(("", f"and {units.count(len(shown) - 5, 'speed')} between"))
    latencies = topology.latency_ps
    low, high = units.format_time(int(latencies.min())), units.format_time(int(latencies.max()))
    items.append(("", f"latency {low}" if low == high else f"latency {low} to {high}"))
    return _rows(items, room)


def _rows(items: list[tuple[str, str]], room: float) -> tuple[str, float, float]:
    parts, x, y, widest = [], 0.0, 0.0, 0.0
    for sample, text in items:
        size = (28.0 if sample else 0.0) + 6.4 * len(text) + 22
        if x and x + size - 22 > room:
            x, y = 0.0, y + 22
        shift = 28 if sample else 0
        words = f'<text class="note" x="{shift}" y="0">{clean_text(text)}</text>'
        parts.append(f'<g transform="translate({x:.0f} {y:.0f})">{sample}{words}</g>')
        x += size
        widest = max(widest, x - 22)
    return "".join(parts), widest, y + 26
