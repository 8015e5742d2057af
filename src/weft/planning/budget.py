"""The time a comparison may take, and whether one more candidate fits into what is left of it.

A candidate cannot be stopped once it is built or simulated, so its cost is estimated before: a row costs so
much to make and to verify, a link crossed so much to simulate. Both are constants of an ordinary machine; how
this one compares is learned from the candidates already done.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.errors import InputError
from weft.schedule.paths import count_crossings

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.schedule import Schedule
    from weft.schedule.paths import Paths

DEFAULT_SECONDS: Final = 60.0

ROW_S: Final = 0.25e-6
CROSSING_S: Final = 0.4e-6
_UNESTIMATED_SHARE: Final = 0.25
_TELLING_S: Final = 0.5
"""What took less than this says little about the machine."""


class Budget:
    """Seconds of wall-clock time; None is as many as it takes.

    Examples
    --------
    >>> times = iter([0.0, 7.0])
    >>> Budget(10.0, clock=lambda: next(times)).left
    3.0
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if seconds is not None and not 0 < seconds < math.inf:
            msg = f"a time limit of {seconds} seconds: give a positive number, or None for no limit"
            raise InputError(msg)
        self.seconds = seconds
        self._clock = clock
        self._began = clock()
        self._spent = self._expected = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left; negative once the time is over."""
        return math.inf if self.seconds is None else self._began + self.seconds - self._clock()

    def allows(self, expected: float) -> bool:
        """Whether something that an ordinary machine does in so many seconds can be done in time."""
        pace = self._spent / self._expected if self._spent > _TELLING_S else 1.0
        left = self.left
        return left > 0 and pace * expected <= left

    def allows_rows(self, rows: float) -> bool:
        """Whether an algorithm that is estimated to have at least so many transfers can be tried in time.

        One of more than Weft accepts refuses at once, or has fewer than estimated and takes some seconds to
        build; a part of the time must be left for that.

        Examples
        --------
        >>> times = iter([0.0, 7.0, 8.0, 9.0])
        >>> budget = Budget(10.0, clock=lambda: next(times))
        >>> budget.allows_rows(1e9), budget.allows_rows(1e9), budget.allows_rows(1e6)
        (True, False, True)
        """
        if rows < limits.MAX_TRANSFERS:
            return self.allows(expect_rows(rows))
        return self.seconds is None or self.left > _UNESTIMATED_SHARE * self.seconds

    def learn(self, expected: float, spent: float) -> None:
        """Take note of what something really took."""
        self._expected += expected
        self._spent += spent


def expect_rows(rows: float) -> float:
    """Seconds that a schedule of so many transfers takes at least, simulation included."""
    return rows * (ROW_S + CROSSING_S)


def expect_schedule(schedule: Schedule, paths: Paths) -> float:
    """Seconds that a schedule takes to verify and to simulate once."""
    return schedule.transfers * ROW_S + count_crossings(schedule, paths) * CROSSING_S
