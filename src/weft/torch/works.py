"""Operations of a process group under way, as torch wants them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import distributed as dist

from weft.runtime.work import Work as Started
from weft.torch.tensors import spoil

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.guard import Guard

_UNSET: Final = timedelta(0)


class Work(dist.Work):
    """A collective that was started and may not be over.

    Parameters
    ----------
    started
        What runs.
    guard
        Keeps its failure.
    outputs
        Tensors that hold its results.
    source
        Rank that a received tensor comes from.
    """

    def __init__(
        self, started: Started, guard: Guard, outputs: Sequence[torch.Tensor], source: int = -1
    ) -> None:
        super().__init__()
        self.started, self._guard, self._outputs, self._source = started, guard, list(outputs), source
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

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
        self._check_process()
        seconds = timeout.total_seconds()
        error = None
        try:
            self.started.wait(seconds if seconds > 0 else None)
        except BaseException as raised:
            if not self.started.is_completed():
                raise
            error = raised
        if error is not None:
            self._guard.check()  # what came first: of a group that has failed before, only that says why
            raise error
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Future of the results; it never completes with an error, see `weft.torch.guard`."""
        self._check_process()
        if self._future is None:
            self._future = promise(self.started, self._outputs)
        return self._future

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
        """Rank that a received tensor comes from."""
        return self._source

    _source_rank = source_rank

    def _check_process(self) -> None:
        if not self.started.is_completed():
            self._guard.check_process()


def promise(started: Started, value: Any) -> torch.futures.Future[Any]:
    """Future that completes with a value when an operation is over, however that ended."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    started.future.add_done_callback(lambda _: future.set_result(value))
    return future


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
    future: Future[Any] = Future()
    left = [len(works)]
    lock = threading.Lock()

    def count(_: Future[Any]) -> None:
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
        work.future.add_done_callback(count)
    return Started(future)


def over(result: Any = None) -> Started:
    """What is over already."""
    future: Future[Any] = Future()
    future.set_result(result)
    return Started(future)
