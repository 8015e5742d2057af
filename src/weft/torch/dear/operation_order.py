"""What DeAR has under way on a communicator, one after the other.

A future for everything that is sent would cost more than some of the sending. Here a started operation is a
number; the communicator's thread is woken only where it has nothing to do.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from weft.errors import RuntimeFailure

_LOOK_S: Final = 1.0

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime import Communicator


class OperationOrder:
    """Operations in the order in which they were started.

    Parameters
    ----------
    communicator
        What they run on; each of them ends by itself within its time.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._started = self._done = 0
        self._failure: BaseException | None = None

    def start(self, run: Callable[[], None]) -> int:
        """Have this run after all that was started before; returns its number."""
        with self._changed:
            number = self._started
            self._started += 1
            self._waiting.append(run)
            wake, self._busy = not self._busy, True
        if wake:
            self._communicator.in_turn(self._work, async_op=True)
        return number

    def is_done(self, number: int) -> bool:
        """Whether an operation is over, well or not."""
        return self._done > number or self._failure is not None

    def wait(self, number: int) -> None:
        """Return once an operation is over; raise what ended it, or one before it."""
        if self._done <= number:
            with self._changed:
                while not self._changed.wait_for(lambda: self.is_done(number), _LOOK_S):
                    self._communicator.check_open()  # each operation ends in its time, unless nobody runs it
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._busy = False
                    return
                run = self._waiting.popleft()
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - whoever waits gets it
                self._fail(error)
                return
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Keep what ended everything; what comes after a failure fails because of it."""
        cause = error.__cause__
        with self._changed:
            self._failure = cause if isinstance(cause, RuntimeFailure) else error
            self._waiting.clear()
            self._changed.notify_all()
