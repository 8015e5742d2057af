"""Deferred failures: the failure of an operation is kept, and raised in the user's thread.

torch swallows the errors of futures that Python completes, or crashes on them. So no future of Weft's ever
completes with one. The failure is kept here instead, and raised at the next opportunity in the user's thread:
where it waits, at the next collective, at the end of the backward pass in which the operation was started,
and before any optimizer steps.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final

from weft.errors import RuntimeFailure, TimedOut, WeftError
from weft.torch.internals import at_end_of_backward, current_backward, refuse_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runtime.handles import Handle

_GRACE_S: Final = 10.0
"""How much longer than an operation may take a backward pass waits for it: it ends by itself before that."""

_FORKED: Final = (
    "this process was forked from a rank of the process group, and cannot use the group in its place; "
    "fork before init_process_group, start the process by 'spawn', or give it a group of its own"
)


class DeferredFailures:
    """The first failure among the operations of one communicator.

    Parameters
    ----------
    timeout
        The seconds that an operation may take.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.failure: BaseException | None = None
        self.forked = False
        self._reported = self._closed = False
        self._lock = threading.Lock()
        self._under_way: dict[Handle[Any], tuple[type[BaseException], ...]] = {}
        self._in_backward: dict[int, list[Handle[Any]]] = {}
        with _lock:
            if not _installed.is_set():
                _installed.set()
                refuse_steps(_check_all)
            _instances.add(self)

    def started(self, work: Handle[Any], *, harmless: tuple[type[BaseException], ...] = ()) -> None:
        """Watch an operation that was just started.

        If this thread is in a backward pass, the pass ends only when the operation has. It does not wait for
        other running operations, which may depend on something that this rank does later.

        Parameters
        ----------
        harmless
            The errors after which the communicator can be used further; only `wait` raises them.
        """
        with self._lock:
            self._under_way[work] = harmless
        work.watch(lambda: self._ended(work))
        number = current_backward()
        if number is None:
            return
        with self._lock:
            first = number not in self._in_backward
            if first:  # passes that were broken off have no end that is seen
                self._in_backward = {
                    earlier: works
                    for earlier, works in self._in_backward.items()
                    if not all(one.is_completed() for one in works)
                }
            self._in_backward.setdefault(number, []).append(work)
        if first:
            at_end_of_backward(lambda: self._end_backward(number))

    @property
    def unreported(self) -> BaseException | None:
        """The failure, if it was not raised yet."""
        return None if self._reported else self.failure

    def failed(self, failure: BaseException, *, reported: bool = False) -> None:
        """Keep a failure, if it is the first; later ones are consequences of it.

        Parameters
        ----------
        reported
            Whether the caller raises it.
        """
        with self._lock:
            self.failure = self.failure or failure
            self._reported = self._reported or reported

    def check(self, *, reports: bool = True) -> None:
        """Raise an error of the same type as the first failure, if there is one, at every call.

        Parameters
        ----------
        reports
            Whether the user sees it; the error of a running operation is seen only where that is waited for.
        """
        self.check_process()
        if self.failure is not None:
            self._reported = self._reported or reports
            again = copy.copy(self.failure) if isinstance(self.failure, WeftError) else self.failure
            raise again from self.failure

    def check_process(self) -> None:
        """Refuse a forked child: the threads that carry out operations are its parent's."""
        if self.forked:
            raise RuntimeFailure(_FORKED)

    def drain(self, patience: float | None) -> int:
        """Wait until all operations have ended; return the number of those that have not in time.

        Without `patience` each operation has its own deadline.
        """
        with self._lock:
            under_way = list(self._under_way)
        late = _late(under_way, patience)
        for work in under_way:  # those that are over may not have told it yet
            if work not in late:
                self._ended(work)
        return len(late)

    def close(self) -> None:
        """Let optimizers step again: the user has closed the communicator."""
        self._closed = True

    def _ended(self, work: Handle[Any]) -> None:
        error = work.error
        with self._lock:
            harmless = self._under_way.pop(work, None)
            if harmless is not None and error is not None and not isinstance(error, harmless):
                self.failure = self.failure or error

    def _end_backward(self, number: int) -> None:
        with self._lock:
            works = self._in_backward.pop(number, [])
        patience = self.timeout + _GRACE_S
        late = _late(works, patience)
        if late:
            self.failed(TimedOut("backward", patience, hint=f"{len(late)} operations are under way"))
        self.check()


def _late(works: Sequence[Handle[Any]], patience: float | None) -> set[Handle[Any]]:
    """Wait for some operations; return those that have not ended in time."""
    under_way = [work for work in works if not work.is_completed()]
    late = wait([work.future for work in under_way], patience).not_done
    return {work for work in under_way if work.future in late}


_instances: weakref.WeakSet[DeferredFailures] = weakref.WeakSet()
_lock: Final = threading.Lock()
_installed: Final = threading.Event()


def _check_all() -> None:
    with _lock:
        instances = tuple(_instances)
    for failures in instances:
        if not failures._closed and not failures.forked:
            failures.check()


def _forget() -> None:
    """Mark all groups in a forked child: they are its parent's."""
    for failures in _instances:
        failures.forked = True
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget)
