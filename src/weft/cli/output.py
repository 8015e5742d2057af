"""What every verb prints with: JSON, tables, files, and a progress bar for long work."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from weft.errors import InputError
from weft.files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.table import Table

PATIENCE_S: Final = 1.0
"""Work shorter than this shows no progress bar."""

LONGEST_LINE: Final = 600
"""Characters of an error message; the middle of a longer one is left out."""

WIDE: Final = 100
"""Columns from which tables show what is nice to have."""


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document, and nothing else."""
    click.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def make_console() -> Console:
    """Make a console on standard output; it honours NO_COLOR and COLUMNS and takes no text for markup."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def make_table(*columns: str, left: tuple[str, ...] = ()) -> Table:
    """Make a table in the house style: a rule under the head, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table as airily as the terminal allows."""
    room = console.options.update(width=10_000)
    folds = any(not column.no_wrap for column in table.columns)
    for padding in ((0, 1), (0, 1, 0, 0), (0, 0)):
        table.padding = padding
        if folds or console.measure(table, options=room).maximum <= console.width:
            break
    console.print(table)


def print_facts(console: Console, facts: list[tuple[str, str]], style: str = "") -> None:
    """Print names and values in two columns; long values are folded under themselves."""
    from rich.text import Text

    indent = max((len(name) for name, _ in facts), default=0) + 2
    for name, value in facts:
        lines = textwrap.wrap(value, max(console.width - indent, 20)) or [""]
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
        try:
            if target.is_dir():
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
