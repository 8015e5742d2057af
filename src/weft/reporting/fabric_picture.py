"""The section of a report that draws a fabric: nodes, lines, how busy they are, and what moves along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import units
from weft.reporting.fabric_shape import FabricShape, find_shape
from weft.reporting.motion import find_motion
from weft.reporting.section_kinds import MOST_NAME, MOST_TITLE, MOST_WORDS, cut
from weft.topology.drawing_pen import Pen, node_class
from weft.topology.drawing_style import speed_text
from weft.topology.layout import Layout, lay_out
from weft.topology.line_shapes import draw_course, point_along
from weft.topology.machine_layout import ROLES, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from weft.simulation import SimulationResult
    from weft.topology.graph import Topology

SPEEDS: Final = 5
"""Looks of lines by the speed of their links, from the slowest to the fastest, where no run is shown."""

_MOST_LABEL: Final = 24
"""Characters of the name of a node where it is drawn; lines have longer names in words."""

_MOST_SPEEDS: Final = 6
"""Lines of the legend of speeds."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """How busy links were in one run.

    Parameters
    ----------
    label
        The name of the run, as the page shows it.
    busy
        For each link, the share of the time that it was busy.
    result
        The run itself, if chunks are to be shown that move.
    """

    label: str
    busy: ArrayLike
    result: SimulationResult | None = None


def fabric_section(
    topology: Topology, uses: Sequence[LinkUse] = (), *, is_named: bool = False
) -> dict[str, Any]:
    """Draw a fabric.

    Parameters
    ----------
    topology
        The fabric.
    uses
        The use of its links in some runs.
    is_named
        Whether only a name said which fabric this is; the section then says so.
    """
    shape = find_shape(topology)
    summary = _summary(topology)
    if is_named:
        summary += " Drawn from its name, because the source has no links or speeds."
    if shape is None:
        note = "It is too large to be drawn link by link, and has no hosts of which some could stand for it."
        return {"kind": "words", "title": "Fabric", "paragraphs": [summary, note]}
    layout = lay_out(shape.topology)
    lines = _lines(shape, layout)
    speeds, line_speeds = _speeds(topology, shape)
    return {
        "kind": "fabric",
        "title": "Fabric",
        "summary": cut(" ".join(filter(None, [summary, shape.note])), MOST_WORDS),
        "radius": layout.radius,
        "labels": layout.labels,
        "kinds": _kinds(shape),
        "speeds": speeds,
        "line_speeds": line_speeds,
        "nodes": [_node(shape, layout, node) for node in range(shape.topology.nodes)],
        "boxes": _boxes(shape, layout),
        "bounds": _bounds(layout, lines),
        "lines": lines,
        "line_names": _line_names(topology, shape),
        "runs": [_run(use, shape) for use in uses],
    }


def _summary(topology: Topology) -> str:
    parts = [units.count(topology.ranks, "rank")]
    if topology.switches:
        parts.append(units.count(topology.switches, "switch"))
    if len(topology.hosts) > 1:
        parts.append(units.count(len(topology.hosts), "host"))
    parts.append(units.count(topology.links, "link"))
    low, high = int(topology.bandwidth.min()), int(topology.bandwidth.max())
    speeds = speed_text(low) if low == high else f"{speed_text(low)} to {speed_text(high)}"
    return f"{', '.join(parts)} of {speeds}."


def _kinds(shape: FabricShape) -> list[list[str]]:
    """For the legend: each kind of node that is drawn, and what it is."""
    topology = shape.topology
    found: dict[str, dict[str, None]] = {}
    for node in range(topology.nodes):
        kind = _kind(topology, node)
        found.setdefault(kind, {})[_kind_name(topology, node, kind)] = None
    return [[kind, " or ".join(names)] for kind, names in found.items()]


def _kind(topology: Topology, node: int) -> str:
    return "rank" if node < topology.ranks else node_class(topology, node)


def _kind_name(topology: Topology, node: int, kind: str) -> str:
    if kind in ("rank", "switch"):
        return kind
    if kind == "switch failed":
        return "failed"
    return ROLES[role_of(topology.node_name(node)) or "switch"]


def _speeds(topology: Topology, shape: FabricShape) -> tuple[list[list[Any]], list[int]]:
    """Looks of speeds for the legend, fastest first, with how many links have each, and each line's look."""
    pen = Pen(topology, Layout([]), None, cables=0)
    values, counts = np.unique(topology.bandwidth, return_counts=True)
    looks: list[list[Any]] = [
        [_speed_look(pen, speed), f"{speed_text(speed)}, {units.count(count, 'link')}"]
        for speed, count in zip(values.tolist()[::-1], counts.tolist()[::-1], strict=True)
    ]
    if len(looks) > _MOST_SPEEDS:
        between = [None, f"{units.count(len(looks) - _MOST_SPEEDS + 1, 'speed')} between"]
        looks = [*looks[: _MOST_SPEEDS - 3], between, *looks[-2:]]
    return looks, [_speed_look(pen, speed) for speed in shape.topology.bandwidth.tolist()]


def _speed_look(pen: Pen, speed: int) -> int:
    return round(pen.fastness(speed) * (SPEEDS - 1))


def _node(shape: FabricShape, layout: Layout, node: int) -> list[Any]:
    """Place, radius, kind and label of a node; dots have no label."""
    topology = shape.topology
    x, y = layout.at[node]
    dot = node in layout.dots
    kind = _kind(topology, node)
    label = "" if dot and layout.dot < 4 else cut(shape.labels[node], _MOST_LABEL)
    return [_round(x), _round(y), _round(layout.dot if dot else layout.radius), kind, label]


def _boxes(shape: FabricShape, layout: Layout) -> list[list[Any]]:
    titles = shape.hosts if len(shape.hosts) == len(layout.boxes) else [box.label for box in layout.boxes]
    return [
        [*map(_round, layout.frame(box)), cut(title, MOST_NAME), bool(box.below)]
        for box, title in zip(layout.boxes, titles, strict=True)
    ]


def _lines(shape: FabricShape, layout: Layout) -> list[list[float]]:
    """Points of each drawn link in the direction of travel; both directions of a cable run side by side."""
    topology = shape.topology
    apart = 0.17 * layout.radius + 0.6
    drawn, seen = [], dict[tuple[int, int], int]()
    for src, dst in zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True):
        twin = seen[src, dst] = seen.get((src, dst), -1) + 1
        offset = apart * (1 + 1.6 * min(twin, 3))
        points = draw_course(layout, min(src, dst), max(src, dst), offset if src < dst else -offset)
        drawn.append([_round(value) for point in (points if src < dst else points[::-1]) for value in point])
    return drawn


def _bounds(layout: Layout, lines: list[list[float]]) -> list[float]:
    """Left, top, right and bottom of everything that is drawn."""
    frames = [layout.frame(box) for box in layout.boxes]
    middles = [point_along(list(zip(line[::2], line[1::2], strict=True)), 0.5) for line in lines]
    xs = [x for x, _ in layout.at] + [m[0] for m in middles] + [v for f in frames for v in (f[0], f[2])]
    ys = [y for _, y in layout.at] + [m[1] for m in middles] + [v for f in frames for v in (f[1], f[3])]
    pad = layout.radius + 8
    return [_round(min(xs) - pad), _round(min(ys) - pad), _round(max(xs) + pad), _round(max(ys) + pad)]


def _line_names(topology: Topology, shape: FabricShape) -> list[str]:
    """For each drawn link, its name and speed; of several, how many they are."""
    drawn = shape.topology
    names = []
    counts = np.bincount(shape.line_of[shape.line_of >= 0], minlength=drawn.links).tolist()
    _, first = np.unique(shape.line_of, return_index=True)
    first = first[-drawn.links :].tolist()
    for line in range(drawn.links):
        more = "" if counts[line] == 1 else f" and {counts[line] - 1:,} more"
        name = cut(topology.link_name(first[line]), MOST_NAME)
        names.append(f"{name}{more}, {speed_text(int(drawn.bandwidth[line]))}")
    return names


def _run(use: LinkUse, shape: FabricShape) -> dict[str, Any]:
    busy = np.asarray(use.busy, np.float64)
    drawn = shape.line_of >= 0
    lines = shape.line_of[drawn]
    counts = np.maximum(np.bincount(lines, minlength=shape.topology.links), 1)
    mean = np.bincount(lines, busy[drawn], minlength=shape.topology.links) / counts
    idle = int((busy == 0).sum())
    return {
        "label": cut(use.label, MOST_TITLE),
        "busy": [round(value, 4) for value in mean.tolist()],
        "idle": idle,
        "links": len(busy),
        "motion": None if use.result is None else find_motion(use.result, shape),
    }


def _round(value: float) -> float:
    return round(float(value), 1)
