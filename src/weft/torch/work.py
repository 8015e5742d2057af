"""Operations of a process group under way, as torch wants them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch

from weft.runtime.handles import Handle as Started
from weft.runtime.handles import OperationFuture
from weft.torch.internals import CallbackWork
from weft.torch.tensors import spoil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.failures import DeferredFailures
    from weft.torch.internals import Event

_UNSET: Final = timedelta(0)


class WorkFuture:
    """A future of torch's that completes with a value when an operation is over, however that ended.

    Parameters
    ----------
    future
        To be completed.
    started
        The operation.
    value
        What the future completes with.
    event
        Of the profiler, that ends with it, in another thread than the one that has begun it.
    """

    def __init__(
        self, future: torch.futures.Future[Any], started: Started, value: Any, event: Event | None = None
    ) -> None:
        self._future, self._started, self._value = future, started, value
        self._lock = threading.RLock()
        self._asked = event is not None
        self._last = future if event is None else event.end_with(future)
        started.future.watch(self._keep)

    def ask(self) -> torch.futures.Future[Any]:
        """The future, for somebody who may give it callbacks in Python, which may wait for operations."""
        with self._lock:  # so that nobody who is about to complete it misses this
            self._asked = True
        return self._future

    def settle(self) -> None:
        """Return once the future is complete, for the waiter of an operation that is over."""
        if not self._complete_unless_asked():
            self._last.wait()

    def _keep(self) -> None:
        if not self._complete_unless_asked():
            self._started.future.in_callback_thread(self._complete)

    def _complete_unless_asked(self) -> bool:
        """Complete it at once, if only torch's own C++ can have it, whose callbacks never wait."""
        with self._lock:
            if not self._asked:
                self._complete()
            return not self._asked

    def _complete(self) -> None:
        if not self._future.done():
            self._future.set_result(self._value)


class Work(CallbackWork):  # type: ignore[misc]
    """A collective that was started and may not be over.

    torch's C++ may keep its own half of this object when Python has dropped the other. It then calls
    `_Waiting`, and finds results in the future that belongs to its half.

    Parameters
    ----------
    started
        What runs.
    guard
        Keeps its failure.
    outputs
        Tensors that hold its results.
    value
        What its future completes with; by default the list of the outputs.
    event
        Of the profiler, if there is one.
    """

    find_source: Callable[[], int] | None = None
    """Tells the rank that a received tensor comes from."""

    def __init__(
        self,
        started: Started,
        guard: DeferredFailures,
        outputs: Sequence[torch.Tensor],
        value: Any = None,
        event: Event | None = None,
    ) -> None:
        waiting = _Waiting(started, guard)
        super().__init__(waiting)
        self.started, self._guard, self._outputs = started, guard, list(outputs)
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
        """Future of the results; it never completes with an error, see `weft.torch.failures`."""
        self._wait.check_process()
        return self._promise.ask()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self.started.is_completed()

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.started.is_completed() and self.started.future.exception() is None

    def exception(self) -> BaseException | None:
        """Why it has failed, if it has."""
        return self.started.future.exception() if self.started.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """Tensors that hold the results."""
        return self._outputs

    def synchronize(self) -> None:
        """Return once it is over."""
        self.wait()

    def source_rank(self) -> int:
        """Rank that a received tensor comes from; -1 of other works, and before it has come."""
        return -1 if self.find_source is None else self.find_source()

    _source_rank = source_rank


class _Waiting:
    """What waiting for an operation is, also for C++ that has kept only its own half of a `Work`."""

    promise: WorkFuture

    def __init__(self, started: Started, guard: DeferredFailures) -> None:
        self._started, self._guard = started, guard

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
            self._guard.check()  # what came first: of a group that has failed before, only that says why
            raise error
        return True

    def check_process(self) -> None:
        """Refuse a forked child, unless the operation was over before."""
        if not self._started.is_completed():
            self._guard.check_process()


def guarded(run: Callable[[], Any], outputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """The same, but when it fails nobody mistakes what is in the outputs for a result."""

    def run_or_spoil() -> Any:
        try:
            return run()
        except BaseException:
            for output in outputs:
                spoil(output)
            raise

    return run_or_spoil


def together(works: Sequence[Started]) -> Started:
    """One operation that is over when all of these are, and fails as the first of them that has failed."""
    future = OperationFuture()
    left = [len(works)]
    lock = threading.Lock()

    def count() -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        errors = (error for work in works if (error := work.future.exception()) is not None)
        error = next(errors, None)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    if not works:
        return over()
    for work in works:
        work.future.watch(count)
    return Started(future)


def over(result: Any = None) -> Started:
    """What is over already."""
    future = OperationFuture()
    future.set_result(result)
    return Started(future)
