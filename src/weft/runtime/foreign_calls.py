"""Calls of foreign code that nothing can interrupt, with a deadline: each runs in a thread of its own."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_GRACE_S: Final = 2.0
_LEAVING_S: Final = 5.0
"""How long a process that ends waits for calls that were given up, all together."""

_given_up: Final[list[threading.Thread]] = []
"""Threads in foreign code. If such a call ends while Python shuts down, C++ aborts the whole process."""


def call_within(seconds: float, name: str, run: Callable[[], _Result]) -> _Result:
    """What a call returns, or raises, within so many seconds.

    It runs in a thread of its own, which is left to itself after the deadline. A process that ends waits for
    it once more, for a moment.

    Parameters
    ----------
    name
        Of the thread.

    Raises
    ------
    TimeoutError
        If it has not ended by then.
    """
    answers: queue.SimpleQueue[tuple[_Result | None, Exception | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((run(), None))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answers.put((None, error))

    worker = threading.Thread(target=answer, name=name, daemon=True)
    worker.start()
    worker.join(seconds)
    # If this whole process was frozen, the deadline is over when it goes on, and the answer about to come.
    worker.join(_GRACE_S)
    try:
        found, error = answers.get_nowait()
    except queue.Empty:
        _given_up[:] = [thread for thread in _given_up if thread.is_alive()] + [worker]
        raise TimeoutError(f"not done within {seconds:.1f} s") from None
    try:
        if error is not None:
            raise error
        return found  # type: ignore[return-value] # there is one where there is no error
    finally:
        del error  # an error in a variable of its own traceback would outlive its handling


@atexit.register
def _await_given_up() -> None:
    deadline = time.monotonic() + _LEAVING_S
    for thread in _given_up:
        thread.join(max(0.0, deadline - time.monotonic()))
