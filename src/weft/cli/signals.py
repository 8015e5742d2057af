"""Being told to stop."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def heed_signals() -> Iterator[None]:
    """End as on Ctrl-C when told to stop otherwise, so that nothing is left behind."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        click.echo(f"weft: stopped by {signal.Signals(number).name}", err=True)
        raise click.exceptions.Exit(128 + number)

    heeded = (signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, stop)
        for number in heeded
        if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
