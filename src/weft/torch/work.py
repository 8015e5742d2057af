"""Handles of a process group's operations as torch has them: its ``Work`` and its future.

Both are made around the runtime's `Handle`, which is the only thing that an operation completes.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch

from weft.runtime.handles import Handle
from weft.torch.internals import CallbackWork
from weft.torch.tensors import invalidate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.failures import DeferredFailures
    from weft.torch.internals import Event

_UNSET: Final = timedelta(0)


class WorkFuture:
    """A future of torch's that completes with a value when an operation is over, also if it has failed.

    Parameters
    ----------
    future
        The future of torch's.
    started
        The handle of the operation.
    value
        The value that the future completes with.
    event
        An event of the profiler that ends with the future, in another thread than the one that began it.
    """

    def __init__(
        self, future: torch.futures.Future[Any], started: Handle[Any], value: Any, event: Event | None = None
    ) -> None:
        self._future, self._started, self._value = future, started, value
        self._lock = threading.RLock()
        self._published = event is not None
        self._last = future if event is None else event.end_with(future)
        started.watch(self._keep)

    def publish(self) -> torch.futures.Future[Any]:
        """Return the future to a user, who may add callbacks in Python, which may wait for operations."""
        with self._lock:  # so that a thread that is about to complete it does not miss this
            self._published = True
        return self._future

    def settle(self) -> None:
        """Return once the future is complete; the operation is over already."""
        if not self._complete_unless_published():
            self._last.wait()

    def _keep(self) -> None:
        if not self._complete_unless_published():
            self._started.future.in_callback_thread(self._complete)

    def _complete_unless_published(self) -> bool:
        """Complete it at once if only torch's own C++ has it, whose callbacks never wait."""
        with self._lock:
            if not self._published:
                self._complete()
            return not self._published

    def _complete(self) -> None:
        if not self._future.done():
            self._future.set_result(self._value)


class Work(CallbackWork):  # type: ignore[misc]
    """An operation of a process group that was started and may still be running.

    torch's C++ may keep its own half of this object when Python has dropped the other. It then calls
    `_Waiting`, and finds results in the future that belongs to its half.

    Parameters
    ----------
    started
        The handle of the operation.
    failures
        Where its failure is kept.
    outputs
        The tensors that hold its results.
    value
        The value that its future completes with; by default the list of the outputs.
    event
        An event of the profiler, if there is one.
    """

    find_source: Callable[[], int] | None = None
    """Returns the rank that a received tensor comes from."""

    def __init__(
        self,
        started: Handle[Any],
        failures: DeferredFailures,
        outputs: Sequence[torch.Tensor],
        value: Any = None,
        event: Event | None = None,
    ) -> None:
        waiting = _Waiting(started, failures)
        super().__init__(waiting)
        self.started, self._failures, self._outputs = started, failures, list(outputs)
        value = self._outputs if value is None else value
        waiting.promise = self._promise = WorkFuture(super().get_future(), started, value, event)
        self._wait = waiting

    def wait(self, timeout: timedelta = _UNSET) -> bool:
        """Return once it is over.

        Raises
        ------
        PeerLost, DesyncError, LinkLost
            If it has failed.
        TimedOut
            If the operation timed out, or is still running after `timeout` (it keeps running).
        RuntimeFailure
            If it was aborted, or this process is a forked child of the one that has started it.
        """
        return self._wait(timeout)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return the future of the results; it never completes with an error, see `weft.torch.failures`."""
        self._wait.check_process()
        return self._promise.publish()

    def is_completed(self) -> bool:
        """Return whether the operation is over, successfully or not."""
        return self.started.is_completed()

    def is_success(self) -> bool:
        """Return whether the operation has succeeded."""
        return self.started.is_completed() and self.started.error is None

    def exception(self) -> BaseException | None:
        """Return the error of the operation, if it has failed."""
        return self.started.error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that hold the results."""
        return self._outputs

    def synchronize(self) -> None:
        """Return once the operation is over."""
        self.wait()

    def source_rank(self) -> int:
        """Return the rank that a received tensor comes from; -1 of other works, and before it is received."""
        return -1 if self.find_source is None else self.find_source()

    _source_rank = source_rank


class _Waiting:
    """The wait for an operation, also for C++ that has kept only its own half of a `Work`."""

    promise: WorkFuture

    def __init__(self, started: Handle[Any], failures: DeferredFailures) -> None:
        self._started, self._failures = started, failures

    def __call__(self, timeout: timedelta) -> bool:
        self.check_process()
        seconds = timeout.total_seconds()
        error = None
        try:
            self._started.wait(seconds if seconds > 0 else None)
        except BaseException as raised:
            if not self._started.is_completed():
                raise
            error = raised
        self.promise.settle()
        if error is not None:
            self._failures.check()  # the first failure of the group: only that says why
            raise error
        return True

    def check_process(self) -> None:
        """Refuse a forked child, unless the operation was over before."""
        if not self._started.is_completed():
            self._failures.check_process()


def invalidate_on_failure(run: Callable[[], Any], outputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """Return the same operation, which makes its outputs unusable when it fails."""

    def run_or_invalidate() -> Any:
        try:
            return run()
        except BaseException:
            for output in outputs:
                invalidate(output)
            raise

    return run_or_invalidate


class CoalescedOperations:
    """Several operations that have one handle, which is complete when all of them are.

    It counts the operations and keeps none of them: a block of torch's coalescing manager that is left by an
    exception is never ended, and must not keep tensors alive.
    """

    def __init__(self) -> None:
        self._handle: Handle[Any] = Handle("coalesced operations")
        self._running = 1  # the block itself, until `end`
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def add(self, handle: Handle[Any]) -> None:
        """Count an operation that was started in the block."""
        with self._lock:
            self._running += 1
        handle.watch(lambda: self._ended(handle.error))

    def end(self) -> Handle[Any]:
        """End the block; the handle fails as the first operation that has failed."""
        self._ended(None)
        return self._handle

    def _ended(self, error: BaseException | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._running -= 1
            if self._running:
                return
        self._handle.complete(error=self._error)
