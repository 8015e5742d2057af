"""How results show themselves: one short line, a small page in a notebook, and a table of pandas.

What a notebook shows is self-contained and bounded: text is escaped, tables have at most `MOST_ROWS` rows,
and a drawing that is larger than `MOST_SVG_CHARACTERS` is left out with a line that says so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from weft.errors import MissingPackageError, printable, shorten
from weft.svg import Markup, clean_text, element, join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_REPR: Final = 200
"""Characters of what Python shows of a result."""

MOST_ROWS: Final = 20
"""Rows of a table in a notebook."""

MOST_SVG_CHARACTERS: Final = 400_000
"""Size of a drawing in a notebook."""

_LONGEST_CELL: Final = 120
_LONGEST_NAME: Final = 60
_LONGEST_VALUE: Final = 120

_CELL: Final = "text-align:{};padding:1px 10px 1px 0;vertical-align:top"


def short_line(text: str) -> str:
    """One line of at most `LONGEST_REPR` characters, without what a terminal would obey.

    Examples
    --------
    >>> short_line("a" * 500 + ">")[-4:], len(short_line("a" * 500))
    ('aaa>', 200)
    """
    return shorten(printable(shorten(text, 4 * LONGEST_REPR)), LONGEST_REPR)


def short_name(name: str) -> str:
    """A name that came from outside, in a line beside other things.

    Examples
    --------
    >>> len(short_name("torus:" + "4x" * 500))
    60
    """
    return shorten(name, _LONGEST_NAME)


class ShortRepr:
    """Gives a dataclass that was declared with ``repr=False`` a line of its small fields.

    Numbers, short texts and None are shown, of collections how many there are, of anything else its class.

    Examples
    --------
    >>> @dataclasses.dataclass(repr=False)
    ... class Example(ShortRepr):
    ...     name: str
    ...     rows: tuple[int, ...]
    >>> Example("ring", (1, 2, 3))
    <Example name='ring', rows: 3>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # only dataclasses have this base
        words = [_field_text(field.name, getattr(self, field.name)) for field in fields if field.repr]
        return short_line(f"<{type(self).__name__} {', '.join(words)}>")


def _field_text(name: str, value: object) -> str:
    if value is None or isinstance(value, bool | int | str):
        return f"{name}={shorten(repr(value), _LONGEST_VALUE)}"
    if isinstance(value, float):
        return f"{name}={value:.6g}"
    try:
        return f"{name}: {len(value):,}"  # type: ignore[arg-type]  # what has no length says so
    except TypeError:
        return f"{name}: {type(value).__name__}"


def html_card(
    title: str,
    facts: Sequence[tuple[str, str]] = (),
    *,
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    total: int | None = None,
    drawing: str | None = None,
) -> str:
    """Write what a notebook shows of a result.

    Parameters
    ----------
    title
        What it is, in one line.
    facts
        Names and values, one to a line.
    columns, rows
        A table; of more than `MOST_ROWS` rows the first are shown.
    total
        How many rows there are, if `rows` has only the first of them.
    drawing
        An SVG document, which goes below.

    Examples
    --------
    >>> page = html_card("a<b", [("time", "2 ms")], columns=["x"], rows=[["1"]] * 50)
    >>> "a&lt;b" in page, page.count("<tr>"), "and 30 more rows" in page
    (True, 22, True)
    """
    parts = [element("div", element("b", _cell_text(title)))]
    if facts:
        lines = [join([_cell("left", name, faint=True), _cell("left", value)]) for name, value in facts]
        parts.append(_table(lines))
    if rows:
        head = join(
            _cell("left" if place == 0 else "right", name, "th") for place, name in enumerate(columns)
        )
        lines = [
            join(_cell("left" if place == 0 else "right", value) for place, value in enumerate(row))
            for row in rows[:MOST_ROWS]
        ]
        parts.append(_table([head, *lines]))
        hidden = (len(rows) if total is None else total) - min(len(rows), MOST_ROWS)
        if hidden:
            parts.append(element("div", _cell_text(f"and {hidden:,} more rows")))
    if drawing is not None and len(drawing) <= MOST_SVG_CHARACTERS:
        parts.append(element("div", Markup(drawing)))
    elif drawing is not None:
        parts.append(element("div", _cell_text(f"a drawing of {len(drawing):,} characters is left out")))
    return element("div", *parts, class_="weft-card")


def _cell_text(text: str) -> Markup:
    return clean_text(text, _LONGEST_CELL)


def _cell(side: str, text: str, tag: str = "td", *, faint: bool = False) -> Markup:
    style = _CELL.format(side) + (";opacity:0.7" if faint else "")
    return element(tag, _cell_text(text), style=style)


def _table(lines: Sequence[Markup]) -> Markup:
    return element("table", *(element("tr", line) for line in lines), style="border-collapse:collapse")


def data_frame(what: str, columns: Mapping[str, Any]) -> Any:
    """Make a ``pandas.DataFrame`` of columns.

    Parameters
    ----------
    what
        What is asked for, for the error.
    columns
        Values by the name of their column.

    Raises
    ------
    MissingPackageError
        If pandas is not installed.
    """
    try:
        import pandas  # noqa: ICN001 - the error names the package
    except ImportError as error:
        raise MissingPackageError(what, "pandas", error) from error
    return pandas.DataFrame(dict(columns))


def record_frame(what: str, records: Sequence[Mapping[str, Any]]) -> Any:
    """Make a ``pandas.DataFrame`` of rows that have the same fields; errors as for `data_frame`."""
    names = list(records[0]) if records else []
    return data_frame(what, {name: [record[name] for record in records] for name in names})
