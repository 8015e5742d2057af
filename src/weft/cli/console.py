"""The console that every verb prints on: lines, facts and tables that fit the width of a terminal."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

import rich.console
from rich.text import Text

from weft.cli.output import make_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

_FOLDED: Final = 24
"""Least width of a column whose text is folded."""


class Console(rich.console.Console):
    """Standard output; it honours NO_COLOR and COLUMNS and takes no text for markup."""

    def __init__(self) -> None:
        super().__init__(file=sys.stdout, highlight=False, markup=False, emoji=False)
        if not self.width:  # COLUMNS=0, as some programs set it when they do not know
            self.width = 80

    def on_broken_pipe(self) -> None:
        """Leave it to ``main`` what a closed pipe means."""
        raise BrokenPipeError

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line of text, folded between words only."""
        for line in _fold(text, self.width) or [""]:
            self.print(Text(line, style=style), soft_wrap=True)

    def print_facts(self, *facts: tuple[str, str], style: str = "") -> None:
        """Print names and values in two columns; long values are folded under themselves."""
        indent = max((len(name) for name, _ in facts), default=0) + 2
        for name, value in facts:
            lines = _fold(value, self.width - indent) or [""]
            for label, line in zip([name, *[""] * len(lines)], lines, strict=False):
                self.print(Text.assemble((label.ljust(indent), "dim"), (line, style)), soft_wrap=True)

    def print_table(self, table: Table, drop: Sequence[int] = ()) -> None:
        """Print a table as airily as the terminal allows; numbers are never cut.

        Where even the closest one is too wide, columns are left out and named below: those of `drop` first,
        then the last ones, down to two.
        """
        folding = [index for index, column in enumerate(table.columns) if not column.no_wrap]
        if folding:
            self._print_at_least(table, self._needs(_without(table, folding)) + _FOLDED)
            return
        order = [*drop, *(index for index in reversed(range(len(table.columns))) if index not in drop)]
        for dropped in range(len(table.columns) - 1):
            left_out = sorted(order[:dropped])
            slim = _without(table, left_out)
            if self._fits(slim):
                break
        self._print_at_least(slim, self._needs(slim))
        if left_out:
            heads = (str(table.columns[index].header) for index in left_out)
            names = (head.replace("-\n", "").replace("\n", " ") for head in heads)
            self.print_line(f"the terminal is too narrow for: {', '.join(names)}", "dim")

    def _print_at_least(self, table: Table, width: int) -> None:
        """Print a table that the terminal may have to fold itself, because it needs so many columns."""
        room, self.width = self.width, max(self.width, width)
        self.print(table)
        self.width = room

    def _fits(self, table: Table) -> bool:
        for padding in ((0, 1), (0, 1, 0, 0), (0, 0)):
            table.padding = padding
            if self._needs(table) <= self.width:
                return True
        return False

    def _needs(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(width=10_000)).maximum


def _without(table: Table, left_out: Sequence[int]) -> Table:
    kept = [column for index, column in enumerate(table.columns) if index not in left_out]
    slim = make_table()
    for column in kept:
        slim.add_column(column.header, justify=column.justify, no_wrap=True)
    for row, *cells in zip(table.rows, *(column.cells for column in kept), strict=True):
        slim.add_row(*cells, style=row.style)
    return slim


def _fold(text: str, width: int) -> list[str]:
    # A spec or a digest that is too long for a line is left to the terminal: a cut number is a wrong one.
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
