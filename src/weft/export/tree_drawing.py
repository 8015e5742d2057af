"""The trees of a schedule as a picture: one small network for each step, one block of them for each chunk.

The first network of a block has the whole way of the chunk, every link in the colour of its step and with the
step's number. Those after it show one step each: links of the step in its colour, what was used before in
grey, ranks that hold the chunk filled. `weft.topology.layout` says where nodes go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits
from weft.errors import ScheduleError
from weft.schedule.ir import Op
from weft.svg import Markup, document, element, join, label, shifted
from weft.topology.drawing_style import SCOPE, STYLE
from weft.topology.layout import Layout, lay_out
from weft.topology.line_shapes import arrow_data, draw_course, path_data, point_along

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.schedule import Schedule
    from weft.topology import Topology

_COLUMNS: Final = 5
_WIDE: Final = 1800.0
"""Of the picture, unless one network is wider."""

_MARGIN: Final = 30.0
_GAP: Final = 34.0
_CAPTION: Final = 24.0
_LEGEND_STEPS: Final = 8
_HEAD: Final = 72.0
_COLOURS: Final = ("#2f6fde", "#1f9e89", "#7aa51d", "#d19b00", "#e0662c", "#c2336a", "#7f4fc9")
"""Of steps from the first to the last, with what is between them mixed; they read on light and dark pages."""

_TREE_STYLE: Final = """
.weft-topology .wire{fill:none;stroke:#d5dde7;stroke-linecap:round}
.weft-topology .past{color:#93a1b3}
.weft-topology .empty{fill:#fff;stroke:#93a1b3}
.weft-topology .empty-number{fill:#5d6b7e;text-anchor:middle;font-weight:600}
.weft-topology .home{fill:none;stroke:#1a2433}
.weft-topology .step{text-anchor:middle;font-weight:700;paint-order:stroke;stroke:#fff;stroke-width:3.5px}
@media (prefers-color-scheme:dark){
.weft-topology .wire{stroke:#303b48}
.weft-topology .past{color:#66768a}
.weft-topology .empty{fill:#151b23;stroke:#66768a}
.weft-topology .empty-number{fill:#9aa8b9}
.weft-topology .home{stroke:#eef3f9}
.weft-topology .step{stroke:#151b23}
}
"""


@dataclass(frozen=True, slots=True)
class _Hop:
    """A link that a chunk takes in a step: from the lower node to the higher (1) or back (-1)."""

    step: int
    low: int
    high: int
    way: int


def draw_trees(schedule: Schedule, chunks: Sequence[int] = (0,)) -> str:
    """Draw the ways of some chunks, step by step, as a self-contained SVG.

    Parameters
    ----------
    schedule
        Of any algorithm; where every rank's chunk has a tree, as with MultiTree, chunk r shows the tree of
        rank r.
    chunks
        Which to draw, one below the other.

    Raises
    ------
    ScheduleError
        If there is no such chunk.
    LimitError
        If the picture would have too many parts.

    Examples
    --------
    >>> from weft.algorithms import multitree
    >>> from weft.topology import load_topology
    >>> picture = draw_trees(multitree.all_gather(load_topology("ring:4")), [0, 1])
    >>> picture.startswith("<svg"), picture.count('class="network"')
    (True, 6)
    """
    topology = schedule.topology
    for chunk in chunks:
        if not 0 <= chunk < schedule.chunks:
            raise ScheduleError(f"there is no chunk {chunk}, the schedule has 0..{schedule.chunks - 1}")
    panels = len(chunks) * (schedule.steps + 1)
    limits.check("networks of the picture, a step of a chunk each", panels, limits.MAX_DRAWN_PANELS)
    limits.check("nodes of all networks of the picture", panels * topology.nodes, limits.MAX_DRAWN_PARTS)
    limits.check("links of all networks of the picture", panels * topology.links, limits.MAX_DRAWN_PARTS)
    pen = _TreePen(schedule, lay_out(topology))
    columns = max(1, min(_COLUMNS, schedule.steps + 1, int(_WIDE / (pen.width + _GAP))))
    wide = max(columns * (pen.width + _GAP) - _GAP, 420.0) + 2 * _MARGIN
    blocks, y = [], _HEAD
    for chunk in chunks:
        block, height = pen.block(chunk, columns)
        blocks.append(shifted(_MARGIN, y, block))
        y += height
    tall = y + 30
    name = f"{schedule.collective} by {schedule.algorithm} on {topology.name}"
    note = "circles are ranks, filled where the chunk is, or a part of its sum; a ring marks where it belongs"
    return document(
        wide,
        tall,
        label(name, _MARGIN, 32, "title"),
        label(note, _MARGIN, 51),
        *blocks,
        shifted(_MARGIN, tall - 16, _legend(schedule.steps)),
        scope=SCOPE,
        title=name,
        style=STYLE + _TREE_STYLE,
    )


def _colour(step: int, steps: int) -> str:
    """Colour of a step: some way between the first and the last of `_COLOURS`."""
    place = step / max(steps - 1, 1) * (len(_COLOURS) - 1)
    low = min(int(place), len(_COLOURS) - 2)
    part = place - low
    ends = [bytes.fromhex(colour[1:]) for colour in _COLOURS[low : low + 2]]
    return "#" + bytes(round((1 - part) * a + part * b) for a, b in zip(*ends, strict=True)).hex()


def _legend(steps: int) -> Markup:
    count = min(steps, _LEGEND_STEPS)
    shown = [round(place * (steps - 1) / max(count - 1, 1)) for place in range(count)]
    parts = [
        element("path", class_="link past", stroke_width=2, d="M0 -4H20"),
        label("used before", 26, 0),
    ]
    for place, step in enumerate(shown):
        x = 112 + 74 * place
        look = f"color:{_colour(step, steps)}"
        parts.append(element("path", class_="link", stroke_width=4, style=look, d=f"M{x} -4h20"))
        parts.append(label(f"step {step}", x + 26, 0))
    return join(parts)


class _TreePen:
    """Draws the networks of one schedule."""

    def __init__(self, schedule: Schedule, layout: Layout) -> None:
        self.schedule, self.layout = schedule, layout
        self.topology: Topology = schedule.topology
        ends = zip(self.topology.link_src.tolist(), self.topology.link_dst.tolist(), strict=True)
        self.cables = sorted({(min(pair), max(pair)) for pair in ends})
        bows = [point_along(draw_course(layout, *pair), 0.5) for pair in self.cables if pair in layout.bend]
        pad = layout.radius + 8
        xs, ys = [x for x, _ in layout.at], [y for _, y in layout.at]
        xs, ys = xs + [bow[0] for bow in bows], ys + [bow[1] for bow in bows]
        self.left, self.top = min(xs) - pad, min(ys) - pad
        self.width, self.height = max(xs) + pad - self.left, max(ys) + pad - self.top
        self.wires = "".join(path_data(draw_course(layout, *pair)) for pair in self.cables)
        self.size = min(layout.radius * 0.82, 13.0)

    def block(self, chunk: int, columns: int) -> tuple[Markup, float]:
        """All networks of a chunk, and how much room they take downwards."""
        schedule = self.schedule
        rows = np.flatnonzero(schedule.chunk == chunk).tolist()
        hops = [hop for row in rows for hop in self._hops(row)]
        title = f"chunk {chunk} of 0..{schedule.chunks - 1}, {len(rows)} transfers"
        parts = [label(title, 0, 14, "title")]
        networks = [("all steps", self._whole(hops), self._holders(chunk, rows, schedule.steps))]
        for step in range(schedule.steps):
            kinds = {int(schedule.op[row]) for row in rows if schedule.step[row] == step}
            verb = "reduce" if Op.REDUCE in kinds else "copy" if kinds else "nothing moves"
            holders = self._holders(chunk, rows, step)
            networks.append((f"step {step}: {verb}", self._step(hops, step), holders))
        across, down = self.width + _GAP, self.height + _CAPTION + 12
        for place, (caption, lines, holders) in enumerate(networks):
            x, y = place % columns * across, 30 + place // columns * down
            wires = element("path", class_="wire", stroke_width=1.2, d=self.wires)
            nodes = [self._node(chunk, node, holders) for node in range(self.topology.nodes)]
            network = shifted(-self.left, _CAPTION - self.top, wires, *lines, *nodes)
            parts.append(shifted(x, y, label(caption, 0, 14), network, class_="network"))
        return join(parts, "\n"), 30 + -(-len(networks) // columns) * down + 14

    def _hops(self, row: int) -> Iterator[_Hop]:
        """Links of a transfer."""
        for link in self.schedule.route_of(row):
            src, dst = int(self.topology.link_src[link]), int(self.topology.link_dst[link])
            yield _Hop(int(self.schedule.step[row]), min(src, dst), max(src, dst), 1 if src < dst else -1)

    def _holders(self, chunk: int, rows: Iterable[int], step: int) -> set[int]:
        """Ranks that have the chunk, or a part of its sum, when a step begins."""
        schedule = self.schedule
        source = int(schedule.source[chunk])
        found = {source} if source >= 0 else set(range(schedule.ranks))
        for row in rows:
            if schedule.step[row] < step:
                found.add(int(schedule.dst[row]))
                # What was summed elsewhere is no longer asked for here, until it comes back.
                if schedule.op[row] == Op.REDUCE:
                    found.discard(int(schedule.src[row]))
        return found

    def _whole(self, hops: Sequence[_Hop]) -> Iterator[Markup]:
        for hop in hops:
            yield self._line(hop, 2.6)
        taken: dict[tuple[int, int, int], list[_Hop]] = {}
        for hop in hops:
            taken.setdefault((hop.low, hop.high, hop.way), []).append(hop)
        for used in taken.values():
            first, last = used[0], used[-1]
            x, y, _ = point_along(self._course(last), 0.5 - 0.13 * last.way * self._both_ways)
            numbers = str(last.step) if first.step == last.step else f"{first.step}..{last.step}"
            look = f"fill:{_colour(last.step, self.schedule.steps)}"
            yield label(numbers, x, y + self.size * 0.36, "step", font_size=self.size, style=look)

    def _step(self, hops: Sequence[_Hop], step: int) -> Iterator[Markup]:
        for hop in hops:
            if hop.step < step:
                data = path_data(draw_course(self.layout, hop.low, hop.high))
                yield element("path", class_="link past", stroke_width=2, d=data)
        for hop in hops:
            if hop.step == step:
                yield self._line(hop, 3.6)

    def _course(self, hop: _Hop) -> list[tuple[float, float]]:
        """A little beside the middle where the chunk takes a cable both ways."""
        return draw_course(self.layout, hop.low, hop.high, 3.4 * hop.way if self._both_ways else 0.0)

    @property
    def _both_ways(self) -> bool:
        return self.schedule.collective == "all_reduce"

    def _line(self, hop: _Hop, width: float) -> Markup:
        points, look = self._course(hop), f"color:{_colour(hop.step, self.schedule.steps)}"
        line = element("path", class_="link", stroke_width=width, style=look, d=path_data(points))
        head = arrow_data(points, hop.way, 2.6 + width)
        return join([line, element("path", class_="arrow", style=look, d=head)])

    def _node(self, chunk: int, node: int, holders: set[int]) -> Markup:
        x, y = self.layout.at[node]
        radius = self.layout.radius * 0.8
        if node >= self.topology.ranks:
            size = {"width": 2 * radius, "height": 2 * radius, "rx": radius * 0.3}
            parts = [element("rect", class_="switch", x=x - radius, y=y - radius, **size)]
            kind = "switch-number"
        else:
            held = node in holders
            kind = "number" if held else "empty-number"
            parts = [element("circle", class_="rank" if held else "empty", cx=x, cy=y, r=radius)]
            if node in (int(self.schedule.source[chunk]), int(self.schedule.target[chunk])):
                parts.append(element("circle", class_="home", cx=x, cy=y, r=radius + 3.2, stroke_width=1.6))
        if self.layout.labels:
            letter = radius * 0.9
            name = self.topology.node_name(node)
            parts.append(label(name, x, y + letter * 0.36, kind, font_size=letter))
        return join(parts)
