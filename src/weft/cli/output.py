"""What every verb prints with: JSON, tables, files, and a progress bar for long work."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from weft.errors import LONGEST_MESSAGE, InputError, printable, shorten
from weft.files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress
    from rich.table import Table

    from weft.cli.console import Console

PATIENCE_S: Final = 1.0
"""Work shorter than this shows no progress bar."""

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


def aligned_number(value: float | None, reference: float) -> str:
    """As many decimals as give `reference` four digits, so that points stand below each other.

    Examples
    --------
    >>> aligned_number(1234.5678, 12.34), aligned_number(None, 1.0)
    ('1,234.57', '-')
    """
    if value is None:
        return "-"
    digits = 3 - math.floor(math.log10(reference)) if reference > 0 else 0
    return f"{value:,.{min(max(digits, 0), 3)}f}"


def human_speed(value: float) -> str:
    """Text for a speed in GB/s.

    Examples
    --------
    >>> human_speed(0.5)
    '500.00 MB/s'
    """
    unit, scale = largest_unit(value, SPEED_UNITS)
    return f"{value / scale:.2f} {unit}"


def one_line(text: str, longest: int) -> str:
    r"""Collapse white space, spell out control characters, and cut out the middle of what is too long.

    Examples
    --------
    >>> one_line("first\n   second", 100)
    'first second'
    >>> one_line("x" * 50 + "end", 20)
    'xxxxxxxx ... xxxxend'
    """
    return shorten(printable(" ".join(text.split())), longest)


DOCUMENT_VERSION: Final = 1
"""Of all JSON documents, docs/schemas; raised when a field of one changes its meaning, or goes."""


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document with its version, and nothing else."""
    document = {"version": DOCUMENT_VERSION, **value}
    click.echo(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def make_console() -> Console:
    """Make a console on standard output."""
    from weft.cli.console import Console

    return Console()


def present(found: Any, show: Callable[[Any, Console], None], *, as_json: bool, **more: Any) -> None:
    """Print what was found: as one JSON document, with further fields, or as `show` has it for people."""
    if as_json:
        print_json(found.to_dict() | more)
    else:
        show(found, make_console())


def make_table(*columns: str, left: tuple[str, ...] = ()) -> Table:
    """Make a table in the house style: a rule under the head, numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True, overflow="fold")
    return table


def check_outputs(*paths: str | None, as_json: bool, inputs: Sequence[str] = ()) -> None:
    """Refuse places that cannot be written, or that are one of `inputs`, before any work is done for them."""
    given = [path for path in paths if path is not None]
    if given.count("-") + as_json > 1:
        raise InputError("two outputs want standard output; give a file name instead of -")
    files = [path for path in given if path != "-"]
    for path in files:
        target = Path(path)
        if not path:
            raise InputError("the name of an output is empty; give a file name, or - for standard output")
        try:
            if target.is_dir() or path.endswith("/"):
                raise InputError(f"{path}: is a directory; give a file name")
            if not target.parent.is_dir():
                raise InputError(f"{path}: there is no directory {target.parent}; make it first")
            kind = _special_kind(target)
            if kind is not None:
                raise InputError(f"{path}: is {kind}; give the name of a regular file, or - and a pipe")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        for source in inputs:
            if any(_is_same_file(name, target) for name in _file_names(source)):
                read = "" if source == path else f" {source},"
                raise InputError(
                    f"{path}: is also an input,{read} and would be overwritten; give another name"
                )
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise InputError(f"{files[0]}: two outputs want this file; give each its own")


def _file_names(source: str) -> Iterator[str]:
    """What may be the name of a file in ``HOSTS=node.xml*16@fabric=rails+fail=0-1``: a cut at any sign."""
    for whole in (source, source.partition("=")[2]):
        yield whole
        yield from (whole[: sign.start()] for sign in re.finditer("[*@+]", whole))


def _is_same_file(name: str, target: Path) -> bool:
    """Whether a name leads to this regular file, by whatever links; a name that leads nowhere does not."""
    try:
        return bool(name) and target.is_file() and target.samefile(name)
    except (OSError, ValueError):
        return False


def _special_kind(path: Path) -> str | None:
    """What a file is that waits for others when it is opened, or is no place for a file; None for the rest.

    Descriptors of this process, such as ``/dev/stdout`` and ``/dev/fd/63``, are open already: those are fine.
    """
    target = Path(os.path.realpath(path))  # of a pipe without a name, nothing that exists
    descriptor = path.absolute().parts[1:2] in (("dev",), ("proc",)) and not path.is_block_device()
    mode = target.stat().st_mode if target.exists() and not descriptor else 0
    if stat.S_ISFIFO(mode):
        return "a named pipe, which would wait for a reader"
    return "a socket" if stat.S_ISSOCK(mode) else "a block device" if stat.S_ISBLK(mode) else None


def warn_of(problem: Exception | None) -> None:
    """Say on standard error what the verifier has against a schedule, if anything."""
    if problem is not None:
        click.echo(f"weft: warning: not correct: {one_line(str(problem), LONGEST_MESSAGE)}", err=True)


def write_output(path: str, data: bytes) -> None:
    """Write a file, or standard output for ``-``."""
    if path == "-":
        sys.stdout.buffer.write(data)
    else:
        write_bytes(path, data)


def write_page(path: str | None, *found: Any, as_json: bool) -> None:
    """Write what was found as a page, if a file for one is given, and say so."""
    if path is None:
        return
    from weft.reporting import report

    data = report(*found).encode()
    write_bytes(path, data)
    if not as_json:
        click.echo(f"\nwrote {printable(path)}, {len(data):,} bytes")


class ProgressBar:
    """Bar on standard error, called with what is done now, steps done and steps in all; and with times.

    Parameters
    ----------
    what
        The work.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Progress | None = None

    def __call__(self, now: str, done: int, total: int) -> None:
        """Draw how far the work is."""
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0], description=f"{self._what}: {now}", completed=done, total=total or None
            )

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the bar away while something else is printed."""
        shown = self._bar is not None and self._bar.live.is_started
        if self._bar is not None and shown:
            self._bar.stop()
        yield
        if self._bar is not None and shown:
            self._bar.start()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar after `PATIENCE_S`, and take it away at the end."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        from weft.cli.time_column import TimeColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeColumn())
        # Standard output is left alone: it may be a file, and rich would send it to the terminal.
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._bar.add_task(self._what, total=None)
        alarm = threading.Timer(PATIENCE_S, self._bar.start)
        alarm.daemon = True
        alarm.start()
        try:
            yield
        finally:
            alarm.cancel()
            alarm.join()
            self._bar.stop()


@contextmanager
def progress(what: str) -> Iterator[ProgressBar]:
    """Give a function ``report(now, done, total)`` that draws a bar on standard error.

    The bar appears after a second, on a terminal only, and is gone when the work is done.
    """
    bar = ProgressBar(what)
    if not sys.stderr.isatty():
        yield bar
        return
    with bar.shown():
        yield bar
