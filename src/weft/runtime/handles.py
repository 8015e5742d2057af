"""Operations under way."""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.callbacks import CallbackThreads

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger("weft.runtime")

_CALLBACKS_WITHIN_S: Final = 10.0
"""How long `Worker.close` waits for callbacks of operations that are over."""


class OperationFuture(Future[Any]):
    """Future of an operation, whose callbacks may wait for other operations.

    Parameters
    ----------
    threads
        In which its callbacks run; by default its own.
    """

    def __init__(self, threads: CallbackThreads | None = None) -> None:
        super().__init__()
        self._threads = threads
        self._watchers: list[Callable[[], None]] = []
        self._callbacks: list[Callable[[Future[Any]], object]] = []
        self.set_running_or_notify_cancel()  # what was started can no longer be cancelled

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Have a function called when this is over, in a thread of its own; at once if it is over already."""
        with self._condition:
            if not self.done():
                self._callbacks.append(fn)
                return
        self._call(fn)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have a function called when this is over, by the thread that completes it; it must never wait."""
        with self._condition:
            if not self.done():
                self._watchers.append(watcher)
                return
        watcher()

    def in_callback_thread(self, call: Callable[[], None]) -> None:
        """Have a function called where callbacks run."""
        if self._threads is None:
            self._threads = CallbackThreads()
        self._threads.run(call)

    def set_result(self, result: Any) -> None:
        """Complete it."""
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: BaseException | None) -> None:
        """Complete it with an error."""
        super().set_exception(exception)
        self._tell()

    def _tell(self) -> None:
        # Nothing is added to either list any more.
        for watcher in self._watchers:
            watcher()
        if self._callbacks:
            self.in_callback_thread(self._call_back)

    def _call_back(self) -> None:
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Future[Any]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - the other callbacks are called all the same
            _log.exception("a callback of an operation has failed")


class Handle:
    """A collective that was started and may not be over.

    Parameters
    ----------
    future
        What it will have been; also for those who wait with `concurrent.futures`. It cannot be cancelled. Its
        callbacks run in threads of their own, and may wait for other operations.
    worker
        Whose thread completes it, if it is one.
    """

    def __init__(self, future: OperationFuture, worker: Worker | None = None) -> None:
        self.future = future
        self._worker = worker

    def wait(self, timeout: float | None = None) -> Any:
        """Result of the operation, as its blocking form would return it.

        Raises
        ------
        TimedOut
            If it is not over after so many seconds; it goes on.
        RuntimeFailure
            If this is the thread that would have to complete it, as within `Communicator.in_turn`.
        """
        if timeout is not None and not timeout >= 0:  # nor is it a number
            msg = f"timeout {timeout}: expected seconds, 0 or more, or None"
            raise InputError(msg)
        if self._worker is not None and self._worker.is_current() and not self.future.done():
            msg = "an operation that waits for a later one of its communicator would wait for itself"
            raise RuntimeFailure(f"{msg}; wait in another thread, or in a callback of its future")
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


def done(run: Callable[[], Any]) -> Handle:
    """Do this at once, and return it as something that was started."""
    future = OperationFuture()
    try:
        future.set_result(run())
    except Exception as error:  # noqa: BLE001 - whoever waits for it gets it
        future.set_exception(error)
    return Handle(future)


class Worker:
    """One thread that does one thing after the other; it starts with the first."""

    def __init__(self) -> None:
        self._callbacks = CallbackThreads()
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], OperationFuture] | None] = queue.SimpleQueue()
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

    def submit(self, run: Callable[[], Any]) -> Handle:
        """Do this after what was submitted before.

        Raises
        ------
        RuntimeFailure
            If it was told to end.
        """
        future = OperationFuture(self._callbacks)
        with self._lock:
            if self._ended:
                msg = "an operation was started while another thread closed what it is for"
                raise RuntimeFailure(msg)
            self._submit(run, future)
        return Handle(future, self)

    def end(self, run: Callable[[], Any] | None = None) -> None:
        """Let the thread end after what was submitted, and after `run`; more cannot be submitted."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if run is not None:
                self._submit(run, OperationFuture(self._callbacks))
            if self._thread is not None:
                self._queue.put(None)

    def close(self) -> None:
        """Finish what was submitted, and end; callbacks that are slow to return go on without this."""
        self.end()
        if self._thread is not None:
            self._thread.join()
        self._callbacks.join(_CALLBACKS_WITHIN_S)
        self._callbacks.close()

    def _submit(self, run: Callable[[], Any], future: OperationFuture) -> None:
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
