"""A failure reaches the user before an optimizer steps.

torch swallows the errors of futures that Python completes, or crashes on them. So no future of Weft's ever
completes with one: the failure is kept here instead, and raised wherever the user's thread comes by next:
where it waits, at the next collective, at the end of the backward pass in which the operation was started,
and before any optimizer steps.
"""

from __future__ import annotations

import concurrent.futures
import copy
import threading
import weakref
from typing import TYPE_CHECKING, Final

from weft.errors import TimedOut, WeftError
from weft.torch.internals import at_end_of_backward, current_backward, refuse_steps

if TYPE_CHECKING:
    from weft.runtime.work import Work

_GRACE_S: Final = 10.0
"""How much longer than an operation may take a backward pass waits for it: it ends by itself before that."""


class Guard:
    """Keeps the first failure among the operations of one communicator.

    Parameters
    ----------
    timeout
        Seconds that an operation may take.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._open: set[Work] = set()
        self._backward: int | None = None
        with _lock:
            if not _guards:
                _install()
            _guards.add(self)

    def started(self, work: Work) -> None:
        """Watch over an operation that was just started; inside a backward pass, its end waits for it."""
        with self._lock:
            self._open.add(work)
        work.future.add_done_callback(lambda _: self._ended(work))
        number = current_backward()
        if number is not None and number != self._backward:
            self._backward = number
            at_end_of_backward(self._end_backward)

    def failed(self, failure: BaseException) -> None:
        """Keep a failure; only the first counts, what follows comes from it."""
        with self._lock:
            self.failure = self.failure or failure

    def check(self) -> None:
        """Raise what has failed, if something has: an error of the same type, for as often as it is asked."""
        if self.failure is not None:
            again = copy.copy(self.failure) if isinstance(self.failure, WeftError) else self.failure
            raise again from self.failure

    def finish(self) -> None:
        """Wait for all that was started, and raise what has failed."""
        with self._lock:
            pending = [work.future for work in self._open]
        patience = self.timeout + _GRACE_S
        late = concurrent.futures.wait(pending, patience).not_done
        if late:
            self.failed(TimedOut("backward", patience, hint=f"{len(late)} operations are under way"))
        self.check()

    def close(self) -> None:
        """Let optimizers step again: whoever closes a communicator knows that it is of no use any more."""
        with _lock:
            _guards.discard(self)

    def _ended(self, work: Work) -> None:
        with self._lock:
            self._open.discard(work)
        error = work.future.exception()
        if error is not None:
            self.failed(error)

    def _end_backward(self) -> None:
        self._backward = None
        self.finish()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_lock: Final = threading.Lock()
_installed: Final = threading.Event()


def _install() -> None:
    if not _installed.is_set():
        _installed.set()
        refuse_steps(_check_all)


def _check_all() -> None:
    for guard in tuple(_guards):
        guard.check()
