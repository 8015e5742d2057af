"""``--time-limit`` for what looks at no clock by itself: a topology that loads, a function of the user's own.

A timer of the system rings in the main thread, also within loops of C++, which let Python handle its signals.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from weft.errors import InputError, LimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_LEAST_S: Final = 5.0
"""What is granted in any case: a limit of nothing asks for the quickest answer, and not for none."""

_AGAIN_S: Final = 0.25
_USER_MODULES: Final = "weft_user_"
"""Beginning of the names that `weft.user_script` gives to modules."""


@contextmanager
def loading_within(seconds: float | None) -> Iterator[None]:
    """End a block that loads a topology when the time is over.

    Raises
    ------
    InputError
        Then.
    """

    def stop(_frame: FrameType | None) -> None:
        granted = max(seconds or 0.0, _LEAST_S)
        msg = f"the topology is not loaded within {granted:g} s; give a larger --time-limit"
        raise InputError(msg)

    with _ringing(seconds, stop):
        yield


@contextmanager
def running_within(seconds: float | None) -> Iterator[None]:
    """End a function of a user's script that still runs when the time is over; Weft's own work goes on.

    Raises
    ------
    LimitError
        Within the function, so that it is told with the line of the script.
    """

    def stop(frame: FrameType | None) -> None:
        while frame is not None:
            if str(frame.f_globals.get("__name__", "")).startswith(_USER_MODULES):
                raise LimitError(f"is not done within {max(seconds or 0.0, _LEAST_S):g} s (--time-limit)")
            frame = frame.f_back

    with _ringing(seconds, stop):
        yield


def time_left(seconds: float | None, began: float) -> float | None:
    """Seconds that are left of a limit if loading since `began` has taken long; always a little."""
    spent = time.monotonic() - began
    return seconds if seconds is None or spent <= _LEAST_S else max(seconds - spent, seconds / 100)


@contextmanager
def _ringing(seconds: float | None, stop: Callable[[FrameType | None], None]) -> Iterator[None]:
    """Call `stop` when the time is over, and again until the block ends."""
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda _number, frame: stop(frame))
    rest = signal.setitimer(signal.ITIMER_REAL, max(seconds, _LEAST_S), _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *rest)
        signal.signal(signal.SIGALRM, before)
