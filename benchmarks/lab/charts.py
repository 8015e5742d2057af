"""Bars with their spread and what was predicted, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

WIDTH, LABEL, RIGHT, ROW, TOP = 860, 265, 165, 30, 52
OWN, OTHER, TEXT, FAINT, MARK = "#1f7a8c", "#b8bfc6", "#1d2329", "#6b747c", "#d1495b"


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
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" font-family="system-ui, sans-serif" font-size="13">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="14" y="28" font-size="15" font-weight="600" fill="{TEXT}">{escape(title)}</text>',
    ]
    own = bars[0].median
    for index, bar in enumerate(bars):
        y = TOP + ROW * index
        middle = y + 10
        low, high = (LABEL + one * scale for one in bar.spread)
        ends = "".join(f"M{x:.1f} {middle - 4}v8" for x in (low, high))
        parts += [
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end" fill="{TEXT}">{escape(bar.name)}</text>',
            (
                f'<rect x="{LABEL}" y="{y}" width="{bar.median * scale:.1f}" height="20" '
                f'fill="{OWN if bar.own else OTHER}"/>'
            ),
            (f'<path d="M{low:.1f} {middle}H{high:.1f}{ends}" stroke="{TEXT}" fill="none"/>'),
        ]
        if bar.predicted is not None:
            x = LABEL + bar.predicted * scale
            parts.append(f'<path d="M{x:.1f} {y - 3}v26" stroke="{MARK}" stroke-width="2"/>')
        end = max(high, LABEL + (bar.predicted or 0) * scale) + 8
        times = "" if index == 0 else f", {bar.median / own:.2f} times"
        parts.append(f'<text x="{end:.1f}" y="{y + 15}" fill="{TEXT}">{bar.median:.3f} s{times}</text>')
    below = TOP + ROW * len(bars) + 18
    parts += [
        f'<path d="M{LABEL} {below - 11}v14" stroke="{MARK}" stroke-width="2"/>',
        (
            f'<text x="{LABEL + 8}" y="{below}" fill="{FAINT}">predicted; bars: median of what was measured, '
            "from fastest to slowest</text>"
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
