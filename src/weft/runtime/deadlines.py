"""Deadlines for calls that nothing can interrupt."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


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

    threading.Thread(target=answer, name=name, daemon=True).start()
    try:
        found, error = answers.get(timeout=seconds)
    except queue.Empty:
        msg = f"not done within {seconds:.1f} s"
        raise TimeoutError(msg) from None
    try:
        if error is not None:
            raise error
        return found  # type: ignore[return-value] # there is one where there is no error
    finally:
        del error  # an error in a variable of its own traceback would outlive its handling
