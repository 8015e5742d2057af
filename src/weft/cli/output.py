"""What every verb prints with: JSON, tables, files, and a progress bar for long work."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from weft.cli.terminal_text import one_line
from weft.errors import LONGEST_MESSAGE, InputError
from weft.files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

PATIENCE_S: Final = 1.0
"""Work shorter than this shows no progress bar."""

_FOLDED: Final = 24
"""Least width of a column whose text is folded."""

WIDE: Final = 100
"""Columns from which tables show what is nice to have."""


SPEED_UNITS: Final = (("GB/s", 1.0), ("MB/s", 1e-3), ("KB/s", 1e-6), ("B/s", 1e-9))
"""Units of what is reckoned in GB/s."""


def largest_unit(reference: float, units: tuple[tuple[str, float], ...]) -> tuple[str, float]:
    """Choose the largest unit in which `reference` is at least 1, with its scale.

    Examples
    --------
    >>> largest_unit(0.5, SPEED_UNITS)
    ('MB/s', 0.001)
    """
    return next(((name, scale) for name, scale in units if reference >= scale), units[-1])


def human_speed(value: float) -> str:
    """Text for a speed in GB/s.

    Examples
    --------
    >>> human_speed(0.5)
    '500.00 MB/s'
    """
    unit, scale = largest_unit(value, SPEED_UNITS)
    return f"{value / scale:.2f} {unit}"


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document, and nothing else."""
    click.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def make_console() -> Console:
    """Make a console on standard output; it honours NO_COLOR and COLUMNS and takes no text for markup."""
    from rich.console import Console

    class Quiet(Console):
        """A console that leaves it to ``main`` what a closed pipe means."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Quiet(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.width:  # COLUMNS=0, as some programs set it when they do not know
        console.width = 80
    return console


def make_table(*columns: str, left: tuple[str, ...] = ()) -> Table:
    """Make a table in the house style: a rule under the head, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "left" if name in left else "right"
        table.add_column(name, justify=justify, no_wrap=True, overflow="fold")
    return table


def print_table(console: Console, table: Table, drop: Sequence[int] = ()) -> None:
    """Print a table as airily as the terminal allows; numbers are never cut.

    Where even the closest one is too wide, columns are left out and named below: those of `drop` first, then
    the last ones, down to two.
    """
    folding = [index for index, column in enumerate(table.columns) if not column.no_wrap]
    if folding:
        _print_at_least(console, table, _width(console, _without(table, folding)) + _FOLDED)
        return
    order = [*drop, *(index for index in reversed(range(len(table.columns))) if index not in drop)]
    for dropped in range(len(table.columns) - 1):
        left_out = sorted(order[:dropped])
        slim = _without(table, left_out)
        if _fits(console, slim):
            break
    _print_at_least(console, slim, _width(console, slim))
    if left_out:
        names = (str(table.columns[index].header).replace("-\n", "").replace("\n", " ") for index in left_out)
        print_line(console, f"no room for: {', '.join(names)}", "dim")


def _print_at_least(console: Console, table: Table, width: int) -> None:
    """Print a table that the terminal may have to fold itself, because it needs so many columns."""
    room, console.width = console.width, max(console.width, width)
    console.print(table)
    console.width = room


def _fits(console: Console, table: Table) -> bool:
    for padding in ((0, 1), (0, 1, 0, 0), (0, 0)):
        table.padding = padding
        if _width(console, table) <= console.width:
            return True
    return False


def _width(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _without(table: Table, left_out: Sequence[int]) -> Table:
    kept = [column for index, column in enumerate(table.columns) if index not in left_out]
    slim = make_table()
    for column in kept:
        slim.add_column(column.header, justify=column.justify, no_wrap=True)
    for row, *cells in zip(table.rows, *(column.cells for column in kept), strict=True):
        slim.add_row(*cells, style=row.style)
    return slim


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print a line of text, folded between words only."""
    from rich.text import Text

    for line in _fold(text, console.width) or [""]:
        console.print(Text(line, style=style), soft_wrap=True)


def _fold(text: str, width: int) -> list[str]:
    # A spec or a digest that is too long for a line is left to the terminal: a cut number is a wrong one.
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)


def print_facts(console: Console, facts: list[tuple[str, str]], style: str = "") -> None:
    """Print names and values in two columns; long values are folded under themselves."""
    from rich.text import Text

    indent = max((len(name) for name, _ in facts), default=0) + 2
    for name, value in facts:
        lines = _fold(value, console.width - indent) or [""]
        for label, line in zip([name, *[""] * len(lines)], lines, strict=False):
            console.print(Text.assemble((label.ljust(indent), "dim"), (line, style)), soft_wrap=True)


def check_outputs(*paths: str | None, as_json: bool) -> None:
    """Refuse places that cannot be written, before any work is done for them."""
    given = [path for path in paths if path is not None]
    if given.count("-") + as_json > 1:
        msg = "two outputs want standard output; give a file name instead of -"
        raise InputError(msg)
    files = [path for path in given if path != "-"]
    for path in files:
        target = Path(path)
        if not path:
            msg = "the name of an output is empty; give a file name, or - for standard output"
            raise InputError(msg)
        try:
            if target.is_dir() or path.endswith("/"):
                msg = f"{path}: is a directory; give a file name"
                raise InputError(msg)
            if not target.parent.is_dir():
                msg = f"{path}: there is no directory {target.parent}; make it first"
                raise InputError(msg)
        except OSError as error:
            msg = f"{path}: cannot be written: {error.strerror or error}"
            raise InputError(msg) from error
    if len({os.path.realpath(path) for path in files}) < len(files):
        msg = f"{files[0]}: two outputs want this file; give each its own"
        raise InputError(msg)


def warn_of(problem: Exception | None) -> None:
    """Say on standard error what the verifier has against a schedule, if anything."""
    if problem is not None:
        click.echo(f"weft: warning: not correct: {one_line(str(problem), LONGEST_MESSAGE)}", err=True)


def write_output(path: str, data: bytes) -> None:
    """Write a file, or standard output for ``-``."""
    if path == "-":
        sys.stdout.buffer.write(data)
        return
    with replacing(Path(path)) as stream:
        stream.write(data)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function ``report(now, done, total)`` that draws a bar on standard error.

    The bar appears after a second, on a terminal only, and is gone when the work is done.
    """
    if not sys.stderr.isatty():
        yield lambda _now, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    alarm = threading.Timer(PATIENCE_S, bar.start)
    alarm.daemon = True
    alarm.start()
    try:
        yield lambda now, done, total: bar.update(
            task, description=f"{what}: {now}", completed=done, total=total or None
        )
    finally:
        alarm.cancel()
        alarm.join()
        bar.stop()
