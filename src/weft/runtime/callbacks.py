"""Threads in which the callbacks of operations run.

The thread that completes an operation also carries out the next one. A callback may wait for that one, or for
a future that another callback completes. So callbacks run in other threads, and no fixed number of threads
would suffice: each callback gets an idle thread or a new one.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_IDLE_S: Final = 5.0
"""How long an idle thread waits for the next callback before it ends."""


class CallbackThreads:
    """Threads that run callbacks, each at once; they start when needed and end when idle."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[tuple[Callable[[], None], str]] = deque()
        self._idle = 0
        self._closed = False
        self._busy: dict[int, str] = {}

    def run(self, call: Callable[[], None], name: str) -> None:
        """Call a function of the operation `name` in a thread that nothing else waits for."""
        with self._changed:
            self._calls.append((call, name))
            if self._idle >= len(self._calls):
                self._changed.notify()
                return
        threading.Thread(target=self._work, name="weft-callbacks", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end; callbacks that are added later are still called."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, patience_s: float) -> list[str]:
        """Wait for all callbacks but one that calls this; return the operations of those that are left."""

        def left() -> list[str]:
            running = [name for thread, name in self._busy.items() if thread != threading.get_ident()]
            return running + [name for _, name in self._calls]

        with self._changed:
            self._changed.wait_for(lambda: not left(), patience_s)
            return left()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            finally:
                with self._changed:
                    del self._busy[threading.get_ident()]
                    self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        """Return the next callback, and mark this thread as busy with it; None if it was idle for long."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._calls or self._closed, _IDLE_S)
            self._idle -= 1
            if not self._calls:
                return None
            call, self._busy[threading.get_ident()] = self._calls.popleft()
            return call
