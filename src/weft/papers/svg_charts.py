"""Small SVG charts of reproductions: lines over numbers, and bars side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

from weft.svg import Markup, document, element, hint, label, series_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

WIDTH: Final = 720
HEIGHT: Final = 360
_LEFT: Final = 64
_RIGHT: Final = 190
_TOP: Final = 44
_BOTTOM: Final = 52
_DASHED: Final = "6 4"
_SCOPE: Final = "weft-chart"

_Cell = TypeVar("_Cell")


def curves(
    cells: Iterable[_Cell], name: str, x: Callable[[_Cell], float], y: Callable[[_Cell], float]
) -> dict[str, list[tuple[float, float]]]:
    """Points of a line chart, one line for each value of an attribute, in the order of the cells."""
    lines: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        lines[getattr(cell, name)].append((x(cell), y(cell)))
    return dict(lines)


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    log_x: bool = False,
    dashed: Sequence[str] = (),
    loose: Sequence[str] = (),
    y_from: float = 0.0,
) -> str:
    """Draw lines through points.

    Parameters
    ----------
    title, x_label, y_label
        For people.
    series
        Points by name.
    log_x
        Whether equal factors are equally far apart.
    dashed
        Names that are limits rather than results.
    loose
        Names whose points are not joined.
    y_from
        Where the vertical axis begins.
    """
    points = [point for line in series.values() for point in line]
    xs = [x for x, _ in points]
    joined = sorted({x for name, line in series.items() if name not in loose for x, _ in line} or set(xs))
    scale = _Scale(min(xs), max(xs), y_from, max(y for _, y in points), log_x=log_x)
    parts = [*_frame(title, x_label, y_label, scale), *_x_numbers(scale, joined)]
    for number, (name, line) in enumerate(series.items()):
        colour = series_class(number)
        dash = _DASHED if name in dashed else None
        path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in sorted(line))
        if name not in loose:
            look = {"stroke_width": 2, "stroke_dasharray": dash}
            parts.append(element("polyline", class_=f"line {colour}", points=path, **look))
        if name not in dashed:
            places = [(scale.x(x), scale.y(y)) for x, y in line]
            parts += [element("circle", class_=f"area {colour}", cx=x, cy=y, r=3) for x, y in places]
        parts += _legend(number, name, colour)
    return _svg(title, parts)


def bar_chart(
    title: str,
    y_label: str,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    line_at: float | None = None,
) -> str:
    """Draw a bar for each series in each group; `line_at` is a value to compare with, such as 1."""
    highest = max((value for values in series.values() for value in values if value is not None), default=1.0)
    scale = _Scale(0, max(1, len(groups)), 0.0, max(highest, line_at or 0.0))
    parts = list(_frame(title, "", y_label, scale))
    room = (scale.x(1) - scale.x(0)) * 0.8
    width = room / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        colour = series_class(number)
        for group, value in enumerate(values):
            if value is None:
                continue
            left = scale.x(group) + room / 8 + number * width
            top = scale.y(value)
            size = {"width": width * 0.9, "height": scale.y(0) - top}
            words = hint(f"{name}: {value:.3g}")
            parts.append(element("rect", words, class_=f"area {colour}", x=left, y=top, **size))
        parts += _legend(number, name, colour)
    for group, text in enumerate(groups):
        middle = (scale.x(group) + scale.x(group + 1)) / 2
        parts.append(_words(middle, HEIGHT - _BOTTOM + 18, text, "middle"))
    if line_at is not None:
        parts.append(_level(scale.y(line_at), "axis", "4 3"))
    return _svg(title, parts)


def map_chart(
    title: str,
    x_label: str,
    y_label: str,
    height: Callable[[float, float], float],
    x_range: tuple[float, float],
    *,
    bands: Sequence[tuple[float, str]],
    levels: Mapping[str, float],
    points: Mapping[str, Sequence[tuple[str, float, float]]],
) -> str:
    """Draw a number over a plane in bands of colour, lines along which it has a value, and named points.

    Parameters
    ----------
    title, x_label, y_label
        For people.
    height
        The number at a place; x grows by equal factors over `x_range`, y from 0 to 100.
    x_range
        Where the horizontal axis begins and ends.
    bands
        The largest number of each band and what the band is called, from the lowest on.
    levels
        Numbers along which a line is drawn, by name.
    points
        Text, x and y of points, by what they have in common.
    """
    scale = _Scale(*x_range, 0.0, 100.0, log_x=True)
    xs = [x_range[0] * (x_range[1] / x_range[0]) ** (place / _COLUMNS) for place in range(_COLUMNS + 1)]
    ys = [100.0 * place / _ROWS for place in range(_ROWS + 1)]
    numbers = [[height(x, y) for x in xs] for y in ys]
    parts = list(_bands(scale, xs, ys, numbers, [most for most, _ in bands]))
    parts += [*_frame(title, x_label, y_label, scale), *_x_numbers(scale, _decades(*x_range))]
    line = 0
    for number, (_, name) in enumerate(bands):
        parts += _legend(line, name, f"b{number}")
        line += 1
    for number, (name, level) in enumerate(levels.items()):
        colour = series_class(number)
        path = " ".join(
            f"M{scale.x(x):.1f},{scale.y(y):.1f}L{scale.x(other_x):.1f},{scale.y(other_y):.1f}"
            for (x, y), (other_x, other_y) in _contour(xs, ys, numbers, level)
        )
        parts.append(element("path", class_=f"line {colour}", stroke_width=2, d=path))
        parts += _legend(line, name, colour)
        line += 1
    labels: list[tuple[str, float, float]] = []
    for number, (name, marks) in enumerate(points.items()):
        colour = series_class(len(levels) + number)
        parts += _legend(line, name, colour)
        line += 1
        for text, x, y in marks:
            left, top = scale.x(x), scale.y(y)
            labels.append((text, left, top))
            parts.append(element("circle", class_=f"area halo {colour}", cx=left, cy=top, r=4))
    parts += _labels(labels)
    return _svg(title, parts)


_COLUMNS: Final = 120
_ROWS: Final = 48
_BANDS: Final = (
    ("#e8d3d0", "#4a3230"),
    ("#f4f4f0", "#23292f"),
    ("#dcebdc", "#20342a"),
    ("#b9d9bd", "#2a5038"),
    ("#8fc39a", "#3a7550"),
)
"""Colours of bands from the lowest number on, for light and for dark pages."""
_LETTER: Final = 5.3
_LINE: Final = 9.5
_DOT: Final = 4.5
_SHIFTS: Final = (0, -5, 5, -10, 10, -15, 15, -20, 20, -26, 26, -33, 33, -40, 40)


def _bands(
    scale: _Scale,
    xs: Sequence[float],
    ys: Sequence[float],
    numbers: Sequence[Sequence[float]],
    mosts: Sequence[float],
) -> Iterator[Markup]:
    """Rectangles of one colour, each as wide as its band goes on in its row."""
    for row in range(len(ys) - 1):
        middles = [(numbers[row][column] + numbers[row + 1][column + 1]) / 2 for column in range(len(xs) - 1)]
        found = [sum(middle > most for most in mosts[:-1]) for middle in middles]
        begin = 0
        for column in range(1, len(found) + 1):
            if column < len(found) and found[column] == found[begin]:
                continue
            left, right, top, bottom = (
                scale.x(xs[begin]),
                scale.x(xs[column]),
                scale.y(ys[row + 1]),
                scale.y(ys[row]),
            )
            size = {"width": right - left + 0.4, "height": bottom - top + 0.4}
            yield element("rect", class_=f"area b{found[begin]}", x=left, y=top, **size)
            begin = column


_Place = tuple[float, float]


def _contour(
    xs: Sequence[float], ys: Sequence[float], numbers: Sequence[Sequence[float]], level: float
) -> Iterator[tuple[_Place, _Place]]:
    """Short lines along which the number has this value: in each cell between the edges that it crosses."""
    for row in range(len(ys) - 1):
        for column in range(len(xs) - 1):
            corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1)]
            crossings = []
            for (near, low), (far, high) in zip(corners, corners[1:] + corners[:1], strict=True):
                before, after = numbers[low][near] - level, numbers[high][far] - level
                if (before > 0) != (after > 0):
                    share = before / (before - after)
                    crossings.append(
                        (xs[near] + share * (xs[far] - xs[near]), ys[low] + share * (ys[high] - ys[low]))
                    )
            yield from zip(crossings[::2], crossings[1::2], strict=True)


def _labels(labels: Sequence[tuple[str, float, float]]) -> Iterator[Markup]:
    """Write beside each point, where neither a point nor anything else is; nearest places first."""
    taken = [(x - _DOT, y + 3, 2 * _DOT) for _, x, y in labels]
    for text, x, y in labels:
        width = _LETTER * len(text)
        beside = [
            (left, y + 3 + shift)
            for shift in _SHIFTS
            for left in (x + _DOT + 2, x - _DOT - 2 - width)
            if left >= _LEFT
            and left + width <= WIDTH - _RIGHT
            and _TOP < y + 3 + shift <= HEIGHT - _BOTTOM + 3
        ]
        free = (
            (left, top)
            for left, top in beside
            if all(
                abs(top - other_top) >= _LINE or left + width < other or other + other_width < left
                for other, other_top, other_width in taken
            )
        )
        left, top = next(free, beside[0])
        taken.append((left, top, width))
        yield label(text, left, top, "ink halo", font_size=9.5, stroke_width=2)


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        factor * 10.0**power
        for power in powers
        for factor in (1, 2, 5)
        if low <= factor * 10.0**power <= high
    ]


class _Scale:
    """Where numbers lie in the picture."""

    def __init__(
        self, x_low: float, x_high: float, y_low: float, y_high: float, *, log_x: bool = False
    ) -> None:
        self._log_x = log_x
        self._x_low, self._x_high = self._bend(x_low), self._bend(x_high)
        self.ticks = _ticks(y_low, y_high)
        self._y_low, self._y_high = y_low, max(y_high, self.ticks[-1])

    def _bend(self, x: float) -> float:
        return math.log2(x) if self._log_x else x

    def x(self, x: float) -> float:
        span = (self._x_high - self._x_low) or 1.0
        return _LEFT + (self._bend(x) - self._x_low) / span * (WIDTH - _LEFT - _RIGHT)

    def y(self, y: float) -> float:
        span = (self._y_high - self._y_low) or 1.0
        return HEIGHT - _BOTTOM - (y - self._y_low) / span * (HEIGHT - _TOP - _BOTTOM)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from the low end to beyond the high one."""
    span = (high - low) or 1.0
    step = 10 ** math.floor(math.log10(span / 4))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 5)
    return [low + step * number for number in range(math.ceil(span / step) + 1)]


def _frame(title: str, x_label: str, y_label: str, scale: _Scale) -> Iterator[Markup]:
    yield label(title, _LEFT, 24, "title")
    for tick in scale.ticks:
        y = scale.y(tick)
        yield _level(y, "grid")
        yield _words(_LEFT - 6, y + 4, f"{tick:g}", "end")
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    if x_label:
        yield _words(middle, HEIGHT - 12, x_label, "middle")
    height = (_TOP + HEIGHT - _BOTTOM) / 2
    turn = f"rotate(-90 16 {height:.1f})"
    yield label(y_label, 16, height, "ink", font_size=12, text_anchor="middle", transform=turn)


def _level(y: float, class_: str, dash: str | None = None) -> Markup:
    ends = {"x1": _LEFT, "x2": WIDTH - _RIGHT, "y1": y, "y2": y}
    return element("line", class_=class_, stroke_dasharray=dash, **ends)


def _x_numbers(scale: _Scale, xs: Sequence[float]) -> Iterator[Markup]:
    last = -math.inf
    for x in xs:
        place = scale.x(x)
        if place - last >= 34:
            last = place
            yield _words(place, HEIGHT - _BOTTOM + 18, f"{x:g}", "middle")


def _legend(number: int, name: str, colour: str) -> list[Markup]:
    y = _TOP + 20 * number
    left = WIDTH - _RIGHT + 14
    sample = element("rect", class_=f"area {colour}", x=left, y=y - 9, width=12, height=12)
    return [sample, _words(left + 18, y + 2, name, "start")]


def _words(x: float, y: float, text: str, anchor: str) -> Markup:
    return label(text, x, y, "ink", text_anchor=anchor, font_size=12)


def _svg(title: str, parts: Sequence[Markup]) -> str:
    light, dark = ("".join(_band_rules(shade)) for shade in (0, 1))
    style = f"{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n"
    return document(WIDTH, HEIGHT, *parts, scope=_SCOPE, title=title, style=style)


def _band_rules(shade: int) -> Iterator[str]:
    for number, colours in enumerate(_BANDS):
        yield f".{_SCOPE} .b{number}{{color:{colours[shade]}}}\n"
