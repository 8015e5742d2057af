"""A topology as a self-contained SVG that reads well on light and on dark pages.

`weft.topology.layout` says where nodes go; here they become circles (ranks) and squares (switches), joined by
one line per cable. Thicker and bluer lines are faster; the two directions of a cable are drawn apart, with
arrows, only where they differ. With `load`, lines show how much each link carries instead. Of a very large
cluster `weft.topology.representatives` chooses the nodes that are drawn, with counts beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from weft import limits, units
from weft.errors import InputError
from weft.svg import NOTHING, Markup, document, element, join, label, legend, shifted
from weft.topology.drawing_pen import LABELLED_CABLES, LOADS, Lane, Pen, draw_boxes, node_class
from weft.topology.drawing_style import SCOPE, STYLE, speed_text
from weft.topology.layout import Layout, lay_out
from weft.topology.line_shapes import draw_course, point_along
from weft.topology.machine_layout import ROLES, role_of
from weft.topology.representatives import lay_out_representatives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from weft.topology.drawing_pen import Cables
    from weft.topology.graph import Topology

    _Load = NDArray[np.float64] | None

_MARGIN: Final = 30.0
_HEAD: Final = 62.0
_LETTER: Final = 6.4


def draw_svg(
    topology: Topology, *, load: ArrayLike | None = None, unit: str = "", caption: str | None = None
) -> str:
    """Draw a topology.

    Parameters
    ----------
    topology
        What to draw.
    load
        For each directed link, how much it carries; colours the links.
    unit
        Of the load, for the legend, such as ``"ms busy"``.
    caption
        What the load is of; stands below the name of the topology.

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
    layout = _choose_layout(topology, loaded=carried is not None)
    if layout is not None and carried is not None and layout.link_kinds is not None:
        carried = _busiest_of_kind(carried, layout.link_kinds)
    most = None if carried is None else float(carried.max(initial=0.0))
    body, width, height, joined = NOTHING, 0.0, 0.0, _count_cables(topology)
    if layout is not None:
        body, width, height = _picture(topology, layout, _cables(topology, carried, layout), most)
    samples = _legend_items(topology, most, unit, layout)
    key, key_width, key_height = legend(samples, max(width, 420.0))
    summary = _summary(topology, joined, layout)
    lines = [summary] if caption is None else [caption, summary]
    head = _HEAD + 18.0 * (len(lines) - 1)
    longest = min(_LETTER * max(map(len, lines)), 1000.0)
    wide = max(width, key_width, longest, 380.0) + 2 * _MARGIN
    tall = head + height + key_height + (_MARGIN if body else 0) + 8
    return document(
        wide,
        tall,
        _title(topology.name, wide),
        *(label(line, _MARGIN, 51 + 18 * place) for place, line in enumerate(lines)),
        shifted((wide - width) / 2, head + 4, body) if body else NOTHING,
        shifted(_MARGIN, tall - key_height, key),
        scope=SCOPE,
        title=topology.name,
        style=STYLE,
    )


def _title(name: str, wide: float) -> Markup:
    """Name of the topology, as much of it as there is room for."""
    room = int((wide - 2 * _MARGIN) / 9)
    return label(name if len(name) <= room else name[: room - 1] + "…", _MARGIN, 32, "title")


def _choose_layout(topology: Topology, *, loaded: bool) -> Layout | None:
    """Where nodes go: representatives of very many, else all of them; None if that is too much to draw."""
    found = lay_out_representatives(topology, loaded=loaded)
    if found is not None or not _fits(topology):
        return found
    return lay_out(topology)


def _fits(topology: Topology) -> bool:
    return topology.nodes <= limits.MAX_DRAWN_NODES and _count_cables(topology) <= limits.MAX_DRAWN_CABLES


def _checked_load(topology: Topology, load: ArrayLike | None) -> _Load:
    if load is None:
        return None
    carried = np.asarray(load, np.float64)
    if carried.shape != (topology.links,) or not np.isfinite(carried).all() or (carried < 0).any():
        msg = f"{topology.name}: load must be one number of at least 0 for each of the {topology.links} links"
        raise InputError(msg)
    return carried


def _busiest_of_kind(load: NDArray[np.float64], kinds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Give every link the largest load of its kind, which the one that is drawn stands for."""
    most = np.zeros(int(kinds.max(initial=0)) + 1)
    np.maximum.at(most, kinds, load)
    return np.asarray(most[kinds], np.float64)


def _count_cables(topology: Topology) -> int:
    """Pairs of nodes that are joined."""
    low, high = (
        np.minimum(topology.link_src, topology.link_dst),
        np.maximum(topology.link_src, topology.link_dst),
    )
    return len(np.unique(low.astype(np.int64) * topology.nodes + high))


def _cables(topology: Topology, load: _Load, layout: Layout) -> Cables:
    """Lines to draw between each two nodes: one for all links alike, one for each direction otherwise."""
    found: dict[tuple[int, int], tuple[list[tuple[int, float]], list[tuple[int, float]]]] = {}
    carried = np.zeros(topology.links) if load is None else load
    drawn = np.zeros(topology.nodes, bool)
    drawn[layout.drawn(topology)] = True
    shown = drawn[topology.link_src] & drawn[topology.link_dst]
    columns = (topology.link_src, topology.link_dst, topology.bandwidth, carried)
    for src, dst, speed, weight in zip(*(column[shown].tolist() for column in columns), strict=True):
        both = found.setdefault((min(src, dst), max(src, dst)), ([], []))
        both[src > dst].append((speed, weight))
    cables: Cables = {}
    for pair, (there, back) in found.items():
        alike = sorted(there) == sorted(back)
        lanes = []
        for way, links in ((0, there),) if alike else ((1, there), (-1, back)):
            for speed in sorted({speed for speed, _ in links}):
                weights = [weight for other, weight in links if other == speed]
                lanes.append(Lane(way, len(weights), speed, max(weights)))
        cables[pair] = lanes
    return cables


def _picture(
    topology: Topology, layout: Layout, cables: Cables, most: float | None
) -> tuple[Markup, float, float]:
    """Boxes, links and nodes, moved so that everything is at 0 and above; and how much room they take."""
    pen = Pen(topology, layout, most, cables=len(cables))
    nodes = layout.drawn(topology)
    left, top, right, bottom = _extent(layout, nodes, cables)
    parts = [draw_boxes(layout)] if layout.boxes else []
    parts += [
        element("path", class_="gap", d=f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}") for a, b, c, d in layout.gaps
    ]
    parts += pen.links(cables)
    parts += [pen.node(node) for node in nodes]
    few, speeds = len(cables) <= LABELLED_CABLES, np.unique(topology.bandwidth)
    whole = layout.nodes is None or int(speeds[0]) in {
        one.bandwidth for two in cables.values() for one in two
    }
    if cables and (few or most is None) and len(speeds) > 1 and whole:
        parts += pen.speeds(cables)
    parts += [label(note.text, note.x, note.y, "count" if note.strong else "note") for note in layout.notes]
    return shifted(-left, -top, join(parts, "\n")), right - left, bottom - top


def _extent(layout: Layout, nodes: list[int], cables: Cables) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of everything that is drawn."""
    pad = layout.radius + 6
    points = [layout.at[node] for node in nodes]
    points += [point_along(draw_course(layout, *pair), 0.5)[:2] for pair in layout.bend if pair in cables]
    for box in layout.boxes:
        x0, y0, x1, y1 = layout.frame(box)
        points += [(x0, y0 - (10 if box.stands_for > 1 else 0)), (x1 + (10 if box.stands_for > 1 else 0), y1)]
        points.append((x0 + _LETTER * len(box.label), y1))
    for note in layout.notes:
        points += [(note.x, note.y), (note.x + _LETTER * len(note.text), note.y)]
    xs, ys = zip(*points, strict=True)
    return min(xs) - pad, min(ys) - pad, max(xs) + pad, max(ys) + pad


def _switch_samples(topology: Topology) -> Iterator[tuple[Markup, str]]:
    """One sample for each sort of switch that is drawn, with what it is."""
    found = {node_class(topology, node): node for node in range(topology.ranks, topology.nodes)}
    words = {"switch": "switch", "switch failed": "failed, no link left"}
    for kind, node in sorted(found.items(), key=lambda item: (item[0] == "switch failed", item[0])):
        role = role_of(topology.node_name(node)) or ""
        sample = element("rect", class_=kind, x=2, y=-11, width=14, height=14, rx=3)
        yield sample, words.get(kind) or ROLES[role]


def _summary(topology: Topology, cables: int, layout: Layout | None) -> str:
    words = [units.count(topology.ranks, "rank")]
    if topology.switches:
        words.append(units.count(topology.switches, "switch"))
    if len(topology.hosts) > 1:
        words.append(units.count(len(topology.hosts), "host"))
    words.append(f"{units.count(topology.links, 'link')} between {units.count(cables, 'pair')} of nodes")
    if layout is None:
        words.append("too large to draw")
    elif layout.nodes is not None:
        words.append(f"{units.count(len(layout.nodes), 'node')} drawn for all")
    return " · ".join(words)


def _legend_items(
    topology: Topology, most: float | None, unit: str, layout: Layout | None
) -> Iterator[tuple[Markup, str]]:
    """Samples with what they mean, in units."""
    if layout is not None:
        renamed = " (its number before the failure)" if topology.rank_labels else ""
        yield element("circle", class_="rank", cx=9, cy=-4, r=7), f"rank{renamed}"
        yield from _switch_samples(topology)
    if most is not None:
        of = f" {unit}" if unit else ""
        for step in range(LOADS):
            text = "idle" if step == 0 else f"≤ {most * step / (LOADS - 1):.3g}{of}"
            yield element("path", class_=f"link l{step}", stroke_width=4, d="M0 -4H20"), text
        if layout is not None and layout.link_kinds is not None:
            yield NOTHING, "a line shows the busiest of the links that it stands for"
    else:
        yield from _speed_samples(topology)
    latencies = topology.latency_ps
    low, high = units.format_time(int(latencies.min())), units.format_time(int(latencies.max()))
    yield NOTHING, f"latency {low}" if low == high else f"latency {low} to {high}"


def _speed_samples(topology: Topology) -> Iterator[tuple[Markup, str]]:
    """The speeds of links, fastest first, with how many links have each."""
    pen = Pen(topology, Layout([]), None, cables=0)
    speeds, counts = np.unique(topology.bandwidth, return_counts=True)
    shown = list(zip(speeds.tolist(), counts.tolist(), strict=True))[::-1]
    for speed, count in shown if len(shown) <= 6 else [*shown[:3], *shown[-2:]]:
        kind, width = pen.look(Lane(0, 1, speed, 0.0))
        sample = element("path", class_=f"link {kind}", stroke_width=width, d="M0 -4H20")
        yield sample, f"{speed_text(speed)}, {units.count(count, 'link')}"
    if len(shown) > 6:
        yield NOTHING, f"and {units.count(len(shown) - 5, 'speed')} between"
