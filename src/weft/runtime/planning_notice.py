"""What rank 0 says while it plans for all ranks: after a second, and every few seconds, how far it is.

Ranks of a job share a terminal or write to files, so these are lines of the log and no progress bar. A thread
writes them, because one algorithm may take long to build.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from weft.errors import printable
from weft.units import human_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_S: Final = 1.0
_EVERY_S: Final = 5.0
_MOST_CHARACTERS: Final = 200
_log: Final = logging.getLogger("weft.runtime")


class PlanningNotice:
    """A context in which planning is reported, unless it is over within a second.

    Parameters
    ----------
    what
        What is planned, such as ``"the all_reduce on torus:4x4"``.
    limit_s
        Seconds that planning may take.
    first_s, every_s
        Seconds until the first line, and between lines.
    clock
        A clock in seconds.
    """

    def __init__(
        self,
        what: str,
        limit_s: float,
        *,
        first_s: float = _FIRST_S,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # The name of a cluster may come from a file, and be anything.
        self._what, self._limit_s = printable(what)[:_MOST_CHARACTERS], limit_s
        self._first_s, self._every_s = first_s, every_s
        self._clock = clock
        self._began = clock()
        self._state = ("", 0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, name="weft-planning", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def note(self, label: str, done: int, total: int) -> None:
        """Take note of progress; `weft.plan` calls this."""
        self._state = (label, done, total)

    def describe(self) -> str:
        """Say how far planning is, and how long it will take."""
        label, done, total = self._state
        spent = self._clock() - self._began
        left = max(self._limit_s - spent, 0.0)
        if not done or done >= total:
            far, expected = "", left
        else:
            far = f", {100 * done // total} % done"
            expected = min(left, spent * (total - done) / done)
        trying = f" ({label})" if label else ""
        to_go = f"about {human_seconds(round(expected, 1))} to go" if expected >= 1 else "nearly done"
        return f"rank 0 plans {self._what}{trying}: {human_seconds(round(spent, 1))} so far{far}, {to_go}"

    def _report(self) -> None:
        wait_s = self._first_s
        while not self._over.wait(wait_s):
            advice = "plan_time_limit= shortens that, plan= with a plan of this collective avoids it"
            _log.warning("%s; %s", self.describe(), advice)
            wait_s = self._every_s
