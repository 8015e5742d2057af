"""Bars with their spread and what was predicted, as SVG."""

from __future__ import annotations

from dataclasses import dataclass

from weft.svg import document, element, label

WIDTH, LABEL, RIGHT, ROW, TOP = 860, 265, 165, 30, 52
SCOPE = "weft-bars"
STYLE = f"""
.{SCOPE} .own{{fill:#1f7a8c}}
.{SCOPE} .other{{fill:#b8bfc6}}
@media (prefers-color-scheme:dark){{
.{SCOPE} .own{{fill:#3fa9bd}}
.{SCOPE} .other{{fill:#5b6670}}
}}
"""


@dataclass(frozen=True)
class Bar:
    """One line: a name, its median, from fastest to slowest, and what was predicted, if anything was."""

    name: str
    median: float
    spread: tuple[float, float]
    predicted: float | None
    own: bool


def draw_bars(title: str, bars: list[Bar]) -> str:
    """A picture of bars, the shorter the better."""
    longest = max(max(bar.spread[1], bar.predicted or 0) for bar in bars)
    scale = (WIDTH - LABEL - RIGHT) / longest
    height = TOP + ROW * len(bars) + 34
    parts = [label(title, 14, 28, "title", style="font-size:15px")]
    own = bars[0].median
    for index, bar in enumerate(bars):
        y = TOP + ROW * index
        middle = y + 10
        low, high = (LABEL + one * scale for one in bar.spread)
        ends = "".join(f"M{x:.1f} {middle - 4}v8" for x in (low, high))
        look = "own" if bar.own else "other"
        parts += [
            label(bar.name, LABEL - 8, y + 15, "ink", text_anchor="end", font_size=13),
            element("rect", class_=look, x=LABEL, y=y, width=bar.median * scale, height=20),
            element("path", class_="axis", d=f"M{low:.1f} {middle}H{high:.1f}{ends}"),
        ]
        if bar.predicted is not None:
            x = LABEL + bar.predicted * scale
            parts.append(element("path", class_="mark", stroke_width=2, d=f"M{x:.1f} {y - 3}v26"))
        end = max(high, LABEL + (bar.predicted or 0) * scale) + 8
        times = "" if index == 0 else f", {bar.median / own:.2f} times"
        parts.append(label(f"{bar.median:.3f} s{times}", end, y + 15, "ink", font_size=13))
    below = TOP + ROW * len(bars) + 18
    words = "predicted; bars: median of what was measured, from fastest to slowest"
    parts += [
        element("path", class_="mark", stroke_width=2, d=f"M{LABEL} {below - 11}v14"),
        label(words, LABEL + 8, below, style="font-size:13px"),
    ]
    return document(WIDTH, height, *parts, scope=SCOPE, title=title, style=STYLE)
