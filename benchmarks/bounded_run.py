"""A long measurement that says how far it is, keeps to its minutes, and can be stopped without loss.

    run = BoundedRun(minutes=12)
    with run.stoppable():
        for case in cases:
            if run.is_over():
                break
            run.tell(case.name, seconds_to_go)
            results.append(measure(case))
    write(results, parameters={"stopped": run.stopped, ...})

A measurement that is stopped by Ctrl-C, SIGTERM or SIGHUP, that fails, or whose minutes are over, leaves the
block, and `stopped` says why; what was measured until then is there to be written.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from weft.errors import WeftError

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class BoundedRun:
    """The clock of one measurement.

    Parameters
    ----------
    minutes
        How long it may take; None for as long as it takes.

    Attributes
    ----------
    stopped
        Why it ended before everything was measured; None if it did not.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self.stopped: str | None = None
        self._began = time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        """Seconds that are left; infinite where there is no bound."""
        return float("inf") if self.minutes is None else 60 * self.minutes - self.spent_s

    def is_over(self, needed_s: float = 0.0) -> bool:
        """Whether the next part, which takes so many seconds, has no time left; notes that as the reason."""
        if self.left_s > needed_s:
            return False
        self.stopped = self.stopped or f"{self.minutes:g} minutes were over"
        return True

    def tell(self, doing: str, to_go_s: float) -> None:
        """Say on standard error what is measured now, and how long everything that is left takes."""
        spent = f"{self.spent_s / 60:5.1f} min"
        print(f"[{spent}] {doing}; {to_go_s / 60:.1f} min to go", file=sys.stderr, flush=True)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Leave the block at once when told to stop, or when a part of the measurement fails."""
        before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = "stopped by a signal"
        except WeftError as error:
            self.stopped = f"failed: {error}"
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.stopped:
            print(f"[{self.spent_s / 60:5.1f} min] {self.stopped}", file=sys.stderr, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
