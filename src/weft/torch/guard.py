"""A failure reaches the user before an optimizer steps.

torch swallows the errors of futures that Python completes, or crashes on them. So no future of Weft's ever
completes with one: the failure is kept here instead, and raised wherever the user's thread comes by next:
where it waits, at the next collective, at the end of the backward pass in which the operation was started,
and before any optimizer steps.
"""

from __future__ import annotations

import copy
import threading
import weakref
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final

from weft.errors import TimedOut, WeftError
from weft.torch.internals import at_end_of_backward, current_backward, refuse_steps

if TYPE_CHECKING:
    from concurrent.futures import Future

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
        self._in_backward: dict[int, list[Work]] = {}
        with _lock:
            if not _installed.is_set():
                _installed.set()
                refuse_steps(_check_all)
            _guards.add(self)

    def started(self, work: Work) -> None:
        """Watch over an operation that was just started.

        If this thread is in a backward pass, that ends only when the operation has. Others that are under way
        do not concern it: what they wait for may depend on this rank's going on.
        """
        work.future.add_done_callback(self._ended)
        number = current_backward()
        if number is None:
            return
        with self._lock:
            first = number not in self._in_backward
            if first:  # of passes that broke off nobody has seen the end
                self._in_backward = {
                    earlier: works
                    for earlier, works in self._in_backward.items()
                    if not all(one.is_completed() for one in works)
                }
            self._in_backward.setdefault(number, []).append(work)
        if first:
            at_end_of_backward(lambda: self._end_backward(number))

    def failed(self, failure: BaseException) -> None:
        """Keep a failure; only the first counts, what follows comes from it."""
        with self._lock:
            self.failure = self.failure or failure

    def check(self) -> None:
        """Raise what has failed, if something has: an error of the same type, for as often as it is asked."""
        if self.failure is not None:
            again = copy.copy(self.failure) if isinstance(self.failure, WeftError) else self.failure
            raise again from self.failure

    def close(self) -> None:
        """Let optimizers step again: whoever closes a communicator knows that it is of no use any more."""
        with _lock:
            _guards.discard(self)

    def _ended(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self.failed(error)

    def _end_backward(self, number: int) -> None:
        with self._lock:
            works = self._in_backward.pop(number, [])
        patience = self.timeout + _GRACE_S
        late = wait([work.future for work in works], patience).not_done
        if late:
            self.failed(TimedOut("backward", patience, hint=f"{len(late)} operations are under way"))
        self.check()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_lock: Final = threading.Lock()
_installed: Final = threading.Event()


def _check_all() -> None:
    for guard in tuple(_guards):
        guard.check()
