"""Being told to stop."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Stopped(click.exceptions.Exit):
    """A signal told this process to stop.

    Parameters
    ----------
    number
        Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number
        self.is_told = False


@contextmanager
def heed_signals() -> Iterator[None]:
    """End as on Ctrl-C when told to stop otherwise, so that nothing is left behind."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        raise Stopped(number)

    heeded = (signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, stop)
        for number in heeded
        if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
    }
    try:
        yield
    except Stopped as stopped:
        # Not in the handler: the signal may have come while something else was being printed.
        if not stopped.is_told:
            click.echo(f"weft: stopped by {signal.Signals(stopped.number).name}", err=True)
        stopped.is_told = True
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
