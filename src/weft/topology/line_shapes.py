"""Lines and arrow heads of drawings: where a cable runs between two nodes, as data of SVG paths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.topology.layout import Layout

    Points = list[tuple[float, float]]


def draw_course(layout: Layout, a: int, b: int, offset: float = 0.0) -> Points:
    """Two ends of a straight line between nodes, or four points of a bow, so far to the left of the middle.

    A layout knows bows from the lower to the higher node; `a` is the lower one.
    """
    (xa, ya), (xb, yb) = layout.at[a], layout.at[b]
    length = math.hypot(xb - xa, yb - ya) or 1.0
    left = ((yb - ya) / length, -(xb - xa) / length)
    ends = [(x + left[0] * offset, y + left[1] * offset) for x, y in ((xa, ya), (xb, yb))]
    bow = layout.bend.get((a, b), 0.0)
    if not bow:
        return ends
    rise = min(0.12, 1.2 * abs(bow) / length)
    middle = [
        (x + (xb - xa) * part + left[0] * (bow + offset), y + (yb - ya) * part + left[1] * (bow + offset))
        for x, y, part in ((xa, ya, rise), (xb, yb, -rise))
    ]
    return [ends[0], *middle, ends[1]]


def path_data(points: Points) -> str:
    """Data of a path along a line or a bow.

    Examples
    --------
    >>> path_data([(0, 0), (10, 5)])
    'M0.0 0.0L10.0 5.0'
    """
    texts = [f"{x:.1f} {y:.1f}" for x, y in points]
    return f"M{texts[0]}L{texts[1]}" if len(points) == 2 else f"M{texts[0]}C{texts[1]} {texts[2]} {texts[3]}"


def point_along(points: Points, t: float) -> tuple[float, float, float]:
    """Point and direction, in degrees, at a fraction of a line or bow.

    Examples
    --------
    >>> point_along([(0, 0), (10, 0)], 0.5)
    (5.0, 0.0, 0.0)
    """
    if len(points) == 2:
        (xa, ya), (xb, yb) = points
        return xa + (xb - xa) * t, ya + (yb - ya) * t, math.degrees(math.atan2(yb - ya, xb - xa))
    s = 1 - t
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    slopes = (-3 * s * s, 3 * s * s - 6 * s * t, 6 * s * t - 3 * t * t, 3 * t * t)
    x, y = (sum(w * p[axis] for w, p in zip(weights, points, strict=True)) for axis in (0, 1))
    dx, dy = (sum(w * p[axis] for w, p in zip(slopes, points, strict=True)) for axis in (0, 1))
    return x, y, math.degrees(math.atan2(dy, dx))


def arrow_data(points: Points, way: int, size: float) -> str:
    """Data of an arrow head on a line or bow: near its end if `way` is 1, near its start if it is -1."""
    x, y, angle = point_along(points, 0.78 if way > 0 else 0.22)
    turn = math.radians(angle) + (0 if way > 0 else math.pi)
    corners = ((1.2 * size, 0.0), (-0.8 * size, 0.9 * size), (-0.8 * size, -0.9 * size))
    texts = [
        f"{x + u * math.cos(turn) - v * math.sin(turn):.1f} {y + u * math.sin(turn) + v * math.cos(turn):.1f}"
        for u, v in corners
    ]
    return f"M{texts[0]}L{texts[1]} {texts[2]}Z"
