"""Operations under way."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weft.errors import InputError, RuntimeFailure, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """A collective that was started and may not be over.

    Parameters
    ----------
    future
        What it will have been; also for those who wait with `concurrent.futures`. It cannot be cancelled.
    worker
        Whose thread completes it, if it is one.
    """

    def __init__(self, future: Future[Any], worker: Worker | None = None) -> None:
        self.future = future
        self._worker = worker

    def wait(self, timeout: float | None = None) -> Any:
        """Result of the operation, as its blocking form would return it.

        Raises
        ------
        TimedOut
            If it is not over after so many seconds; it goes on.
        RuntimeFailure
            If this is the thread that would have to complete it, as in a callback.
        """
        if timeout is not None and not timeout >= 0:  # nor is it a number
            msg = f"timeout {timeout}: expected seconds, 0 or more, or None"
            raise InputError(msg)
        if self._worker is not None and self._worker.is_current() and not self.future.done():
            msg = "a callback that waits for another operation of its communicator would wait for itself"
            raise RuntimeFailure(f"{msg}; wait in another thread, or use Communicator.in_turn")
        try:
            return self.future.result(timeout)
        except FutureTimeoutError as error:
            if self.future.done():
                raise
            raise TimedOut("wait", timeout or 0.0, hint="the operation goes on") from error

    result = wait

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self.future.done()

    is_done = is_completed


def done(run: Callable[[], Any]) -> Work:
    """Do this at once, and return it as something that was started."""
    future: Future[Any] = Future()
    try:
        future.set_result(run())
    except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
        future.set_exception(error)
    return Work(future)


class Worker:
    """One thread that does one thing after the other; it starts with the first."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = 0
        self._ended = False
        self._lock = threading.Lock()

    def idle(self) -> bool:
        """Whether nothing is queued or under way."""
        return self._pending == 0

    def is_current(self) -> bool:
        """Whether this is the thread that works."""
        return threading.current_thread() is self._thread

    def submit(self, run: Callable[[], Any]) -> Work:
        """Do this after what was submitted before.

        Raises
        ------
        RuntimeFailure
            If it was told to end.
        """
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # what was started can no longer be cancelled
        with self._lock:
            if self._ended:
                msg = "an operation was started while another thread closed what it is for"
                raise RuntimeFailure(msg)
            self._submit(run, future)
        return Work(future, self)

    def end(self, run: Callable[[], Any] | None = None) -> None:
        """Let the thread end after what was submitted, and after `run`; more cannot be submitted."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if run is not None:
                self._submit(run, Future())
            if self._thread is not None:
                self._queue.put(None)

    def close(self) -> None:
        """Finish what was submitted, and end."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def _submit(self, run: Callable[[], Any], future: Future[Any]) -> None:
        self._pending += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="weft", daemon=True)
            self._thread.start()
        self._queue.put((run, future))

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            run, future = task
            try:
                result = run()
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                self._settle()
                with suppress(InvalidStateError):  # a user who has completed it does not end this thread
                    future.set_exception(error)
            else:
                self._settle()
                with suppress(InvalidStateError):
                    future.set_result(result)

    def _settle(self) -> None:
        with self._lock:
            self._pending -= 1
