"""Threads in which the callbacks of operations run.

The thread that completes an operation is the one that carries out the next. A callback may wait for that one,
or for a future that another callback completes, so it runs elsewhere, and no fixed number of threads would
suffice: a callback gets a thread that is idle, or a new one.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_IDLE_S: Final = 5.0
"""How long a thread without a callback stays for the next one."""


class CallbackThreads:
    """Runs callbacks, each at once; threads start with the first callback and end when they are idle."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._closed = False
        self._busy: set[int] = set()

    def run(self, call: Callable[[], None]) -> None:
        """Have a function called in a thread that nothing else waits for."""
        with self._changed:
            self._calls.append(call)
            if self._idle >= len(self._calls):
                self._changed.notify()
                return
        threading.Thread(target=self._work, name="weft-callbacks", daemon=True).start()

    def is_current(self) -> bool:
        """Whether this is a thread that runs a callback."""
        return threading.get_ident() in self._busy

    def close(self) -> None:
        """Let threads end that are idle; callbacks that come later are still called."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, patience_s: float) -> bool:
        """Whether all callbacks have returned within so many seconds; one that calls this does not count."""
        mine = {threading.get_ident()}
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls and not self._busy - mine, patience_s)

    def _work(self) -> None:
        me = threading.get_ident()
        while (call := self._next(me)) is not None:
            try:
                call()
            finally:
                with self._changed:
                    self._busy.discard(me)
                    self._changed.notify_all()

    def _next(self, me: int) -> Callable[[], None] | None:
        """The next callback, which keeps this thread busy from here on; None if none comes for long."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._calls or self._closed, _IDLE_S)
            self._idle -= 1
            if not self._calls:
                return None
            self._busy.add(me)
            return self._calls.popleft()
