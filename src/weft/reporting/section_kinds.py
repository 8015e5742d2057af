"""The plain kinds of sections that a report has: words, facts, text, tables, bars and charts over sizes.

A section is a dictionary that is ready for JSON. Its ``kind`` says which function of the page draws it
(``assets/page.js``). All of them are bounded, whatever they are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Section = dict[str, Any]

MOST_ROWS: Final = 200
"""Rows of one table, or bars, or sizes of a chart."""

MOST_SERIES: Final = 24
MOST_TITLE: Final = 160
"""Characters of a title; the name of a topology may have thousands."""

MOST_NAME: Final = 80
"""Characters of a name: of a link, a node, a column, a series or a track."""

MOST_WORDS: Final = 4000
"""Characters of a paragraph, or of the note of a table or picture."""

_MOST_COLUMNS: Final = 40
_MOST_TEXT: Final = 20_000
_MOST_CELL: Final = 600


def cut(text: object, longest: int = _MOST_CELL) -> str:
    """Text of bounded length."""
    plain = str(text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def words_section(title: str, paragraphs: Sequence[str]) -> Section:
    """Sentences."""
    return {
        "kind": "words",
        "title": cut(title, MOST_TITLE),
        "paragraphs": [cut(one, MOST_WORDS) for one in paragraphs[:MOST_ROWS]],
    }


def facts_section(title: str, facts: Sequence[tuple[str, object]]) -> Section:
    """Pairs of a name and a value."""
    return {
        "kind": "facts",
        "title": cut(title, MOST_TITLE),
        "facts": [[cut(name, MOST_NAME), cut(value, 2000)] for name, value in facts[:MOST_ROWS]],
    }


def text_section(title: str, text: str) -> Section:
    """Text as it stands, in columns."""
    return {"kind": "text", "title": cut(title, MOST_TITLE), "text": cut(text, _MOST_TEXT)}


def table_section(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1, note: str = ""
) -> Section:
    """Build a table; the first `left` columns hold words, the others numbers as text."""
    more = f"The first {MOST_ROWS} of {len(rows):,} rows. " if len(rows) > MOST_ROWS else ""
    if len(columns) > _MOST_COLUMNS:
        more += f"The first {_MOST_COLUMNS} of {len(columns):,} columns. "
    return {
        "kind": "table",
        "title": cut(title, MOST_TITLE),
        "columns": [cut(name, MOST_NAME) for name in columns[:_MOST_COLUMNS]],
        "left": left,
        "rows": [[cut(cell) for cell in row[:_MOST_COLUMNS]] for row in rows[:MOST_ROWS]],
        "note": cut(more + note, MOST_WORDS),
    }


def chart_section(
    title: str,
    sizes: Sequence[int],
    series: Mapping[str, Sequence[float | None]],
    bound: Sequence[float | None] | None = None,
    note: str = "",
) -> Section:
    """Build a chart of times in seconds against sizes in bytes, both on logarithmic axes.

    Parameters
    ----------
    title, note
        Texts above and below the chart.
    sizes
        Sizes in ascending order.
    series
        A time for each size, or None, by label.
    bound
        What no schedule can beat, drawn as a line of its own.
    """
    lines = [
        {"label": cut(label, MOST_NAME), "seconds": list(values[:MOST_ROWS]), "bound": False}
        for label, values in list(series.items())[:MOST_SERIES]
    ]
    if bound is not None and any(value is not None for value in bound):
        lines.append({"label": "bound", "seconds": list(bound[:MOST_ROWS]), "bound": True})
    more = f"{len(series) - MOST_SERIES} further series are not drawn. " if len(series) > MOST_SERIES else ""
    return {
        "kind": "chart",
        "title": cut(title, MOST_TITLE),
        "sizes": list(sizes[:MOST_ROWS]),
        "series": lines,
        "note": cut(more + note, MOST_WORDS),
    }


def bars_section(
    title: str,
    bars: Sequence[tuple[str, Mapping[str, float | None]]],
    *,
    bound: float | None = None,
    note: str = "",
) -> Section:
    """Build bars of times in seconds, one or several beside each label, with the bound as a line."""
    return {
        "kind": "bars",
        "title": cut(title, MOST_TITLE),
        "bars": [
            {"label": cut(label, MOST_NAME), "seconds": _bounded(values)}
            for label, values in bars[:MOST_ROWS]
        ],
        "bound": bound,
        "note": cut(note, MOST_WORDS),
    }


def _bounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {cut(name, MOST_NAME): value for name, value in list(values.items())[:MOST_SERIES]}
