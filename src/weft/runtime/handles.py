"""Handles of operations that were started, and the thread that carries them out.

Whatever is started and waited for later has one kind of handle, `Handle`, and runs on a `Worker`: the
collectives of a communicator, the buckets of DeAR, the messages of a process group. torch's ``Work`` is made
around a handle.
"""

from __future__ import annotations

import logging
import numbers
import os
import threading
import warnings
import weakref
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypedDict, TypeVar, cast

from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.callbacks import CallbackThreads
from weft.runtime.extension import _runtime

if TYPE_CHECKING:
    from collections.abc import Callable

_log: Final = logging.getLogger("weft.runtime")

_Result = TypeVar("_Result")


class OperationOptions(TypedDict, total=False):
    """What every operation takes besides its arrays: seconds, and a name of what the elements are."""

    timeout: float | None
    kind: str


class AnyOptions(OperationOptions, total=False):
    """The same, and whether to return its `Handle` at once instead of waiting for the result."""

    async_op: bool


class WaitingOptions(OperationOptions, total=False):
    """Options of an operation that returns its result."""

    async_op: Literal[False]


class StartingOptions(OperationOptions):
    """Options of an operation that returns its `Handle` at once."""

    async_op: Literal[True]


_CALLBACKS_WITHIN_S: Final = 10.0
"""How long `Worker.close` waits for callbacks of completed operations."""


class OperationFuture(Future[Any]):
    """The future of an operation; its callbacks may wait for other operations.

    Parameters
    ----------
    handle
        The handle of the operation, which a user who completes the future completes as well.
    threads
        The threads in which its callbacks run.
    name
        The name of the operation, for messages.
    """

    def __init__(self, handle: Handle[Any], threads: CallbackThreads, name: str) -> None:
        super().__init__()
        self._handle, self._threads, self._name = weakref.ref(handle), threads, name
        self._callbacks: list[Callable[[Future[Any]], object]] = []
        self.set_running_or_notify_cancel()  # what was started can no longer be cancelled

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call a function in a callback thread when this is complete; here, if it is complete now."""
        with self._condition:
            if not self.done():
                self._callbacks.append(fn)
                return
        self._call(fn)

    def in_callback_thread(self, call: Callable[[], None]) -> None:
        """Call a function in a callback thread."""
        self._threads.run(call, self._name)

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the operation, as `Handle.wait` does."""
        self._check_waiter()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the operation, or None if it has succeeded."""
        self._check_waiter()
        return super().exception(timeout)

    def _check_waiter(self) -> None:
        """Refuse a thread that would wait for ever, as `Handle.wait` does."""
        handle = self._handle()
        if handle is not None and not self.done():
            handle.check_waiter()

    def set_result(self, result: Any) -> None:
        """Complete it with a result."""
        super().set_result(result)
        self._notify(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Complete it with an error."""
        super().set_exception(exception)
        self._notify(None, exception)

    def _notify(self, result: Any, error: BaseException | None) -> None:
        handle = self._handle()
        if handle is not None:
            handle.complete(result, error)
        if self._callbacks:  # nothing is added to it any more
            self.in_callback_thread(self._call_back)

    def _call_back(self) -> None:
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Future[Any]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - the other callbacks are called all the same
            _log.exception("a callback of an operation has failed")


class Handle(Generic[_Result]):
    """An operation that was started and may still be running.

    It costs little where only `wait`, `watch` and `is_completed` are used: a future, and an event to wait
    for, are made when they are needed.

    Parameters
    ----------
    name
        The name of the operation, for messages.
    worker
        The worker whose thread completes it, if there is one.
    """

    __slots__ = (
        "__weakref__",
        "_done",
        "_error",
        "_event",
        "_future",
        "_lock",
        "_name",
        "_result",
        "_watchers",
        "_worker",
    )

    def __init__(self, name: str = "an operation", worker: Worker | None = None) -> None:
        self._name, self._worker = name, worker
        self._lock = threading.Lock() if worker is None else worker.lock
        self._done = False
        self._result: _Result | None = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None
        self._future: OperationFuture | None = None
        self._watchers: tuple[Callable[[], None], ...] = ()

    @property
    def error(self) -> BaseException | None:
        """The error of the operation; None if it has succeeded, or is not over yet."""
        return self._error

    @property
    def future(self) -> OperationFuture:
        """The future, also for waiting with `concurrent.futures`; it cannot be cancelled.

        Its callbacks run in threads of their own, and may wait for other operations.
        """
        with self._lock:
            future, is_new = self._future, self._future is None
            if future is None:
                threads = CallbackThreads() if self._worker is None else self._worker.callbacks
                future = self._future = OperationFuture(self, threads, self._name)
        if is_new and self._done:
            self._complete_future()
        return future

    def wait(self, timeout: float | None = None) -> _Result:
        """Return the result of the operation, as its blocking form would.

        Raises
        ------
        TimedOut
            If the operation is still running after `timeout` seconds; it keeps running.
        RuntimeFailure
            If this is the thread that would have to complete it, as within `Communicator.in_turn`, or a
            forked child, which does not have that thread.
        """
        if timeout is not None:
            timeout = _check_wait(timeout)
        if not self._done:
            self._wait_until_done(timeout)
        if self._error is not None:
            raise self._error
        return cast("_Result", self._result)

    result = wait

    def is_completed(self) -> bool:
        """Return whether the operation is over, successfully or not."""
        return self._done

    is_done = is_completed

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call a function, which must never block, in the thread that completes this; now if it is."""
        with self._lock:
            if not self._done:
                self._watchers += (watcher,)
                return
        watcher()

    def complete(self, result: Any = None, error: BaseException | None = None) -> None:
        """Complete the operation with a result or an error; if it is complete already, nothing happens."""
        with self._lock:
            if self._done:
                return
            self._result, self._error, self._done = result, error, True
            watchers, self._watchers = self._watchers, ()
        for watcher in watchers:
            watcher()
        if self._future is not None:
            self._complete_future()
        if self._event is not None:
            self._event.set()

    def _complete_future(self) -> None:
        assert self._future is not None
        with suppress(InvalidStateError):  # the user, or another thread, has completed it
            if self._error is None:
                self._future.set_result(self._result)
            else:
                self._future.set_exception(self._error)

    def check_waiter(self) -> None:
        """Refuse a thread that would wait for ever, as `Worker.check_waiter` says."""
        if self._worker is not None:
            self._worker.check_waiter()

    def _wait_until_done(self, timeout: float | None) -> None:
        self.check_waiter()
        with self._lock:
            if self._done:
                return
            if self._event is None:
                self._event = threading.Event()
        if not self._event.wait(timeout):
            raise TimedOut("wait", timeout or 0.0, hint="the operation goes on")


def _check_wait(timeout: Any) -> float:
    """Return for how many seconds a thread can wait at most, if it is to wait so long."""
    known: Any = timeout if isinstance(timeout, numbers.Real) else -1
    if not known >= 0:  # also where it is not a number
        raise InputError(f"timeout {timeout!r}: expected seconds, 0 or more, or None")
    return float(min(known, threading.TIMEOUT_MAX))


def done(run: Callable[[], Any] = lambda: None) -> Handle[Any]:
    """Run an operation at once, and return the handle of a completed one."""
    handle: Handle[Any] = Handle()
    try:
        handle.complete(run())
    except Exception as error:  # noqa: BLE001 - `Handle.wait` raises it
        handle.complete(error=error)
    return handle


class Worker:
    """A queue of operations and the one thread that carries them out in order; it starts with the first.

    Attributes
    ----------
    queue
        The queue, which also takes calls that are repeated without Python (`Communicator.repeat`).
    """

    def __init__(self) -> None:
        self.callbacks = CallbackThreads()
        self.lock = threading.Lock()
        self.queue = _runtime.WorkerQueue()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._ended = False

    @property
    def pending(self) -> int:
        """The number of operations that are queued or running."""
        return self.queue.pending

    def idle(self) -> bool:
        """Return whether nothing is queued or running."""
        return self.queue.pending == 0

    def is_current(self) -> bool:
        """Return whether the calling thread is the one that carries out the operations."""
        return threading.current_thread() is self._thread

    def check_waiter(self) -> None:
        """Refuse a thread that would wait for ever: the worker's own, and that of a forked child.

        Whatever is held back begins now, since somebody waits for it.
        """
        if self.is_current():
            msg = "an operation that waits for a later one of its communicator would wait for itself"
            raise RuntimeFailure(f"{msg}; wait in another thread, or in a callback of its future")
        if self._process != os.getpid():
            msg = "this process was forked while an operation was running, which only its parent completes"
            raise RuntimeFailure(f"{msg}; fork before weft.init, or start the process by 'spawn'")
        self.queue.release()

    def submit(self, run: Callable[[], Any], name: str = "an operation") -> Handle[Any]:
        """Queue an operation behind those that were submitted before.

        Parameters
        ----------
        name
            The name of the operation, for messages.

        Raises
        ------
        RuntimeFailure
            If `end` was called.
        """
        handle: Handle[Any] = Handle(name, self)
        with self.lock:
            if self._ended:
                raise RuntimeFailure("an operation was started while another thread closed what it is for")
            self._submit(run, handle)
        return handle

    def end(self, run: Callable[[], Any] | None = None) -> None:
        """Let the thread end after the operations in the queue and after `run`; refuse further ones."""
        with self.lock:
            if self._ended:
                return
            self._ended = True
            if run is not None:
                self._submit(run, Handle(worker=self))
            self.queue.end()

    def close(self) -> None:
        """Finish the queued operations and end; callbacks that do not return are left with a warning."""
        self.end()
        if self._thread is not None:
            self._thread.join()
        late = self.callbacks.join(_CALLBACKS_WITHIN_S)
        if late:
            msg = f"callbacks of {', '.join(late)} have not returned after {_CALLBACKS_WITHIN_S:g} s"
            warnings.warn(f"{msg}; they are left running", RuntimeWarning, stacklevel=2)
        self.callbacks.close()

    def _submit(self, run: Callable[[], Any], handle: Handle[Any]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="weft", daemon=True)
            self._thread.start()
        self.queue.put((run, handle))

    def _work(self) -> None:
        while (task := self.queue.get()) is not None:
            run, handle = task
            try:
                result = run()
            except BaseException as error:  # noqa: BLE001 - `Handle.wait` raises it
                self.queue.settle()
                handle.complete(error=error)
            else:
                self.queue.settle()
                handle.complete(result)
