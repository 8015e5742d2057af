"""Deadlines for calls that nothing can interrupt."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_GRACE_S: Final = 2.0


def call_within(seconds: float, name: str, run: Callable[[], _Result]) -> _Result:
    """What a call returns, or raises, within so many seconds.

    It runs in a thread of its own, which is left to itself after the deadline.

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
        msg = f"not done within {seconds:.1f} s"
        raise TimeoutError(msg) from None
    try:
        if error is not None:
            raise error
        return found  # type: ignore[return-value] # there is one where there is no error
    finally:
        del error  # an error in a variable of its own traceback would outlive its handling
