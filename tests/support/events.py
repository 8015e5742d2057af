"""Files as events: what a rank or a test waits for has happened then, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LONGEST_S = 60.0


def tell(folder: str | Path, event: str) -> None:
    """Say that something has happened."""
    Path(folder, event).touch()


def await_event(folder: str | Path, event: str) -> None:
    """Wait until something has happened."""
    await_condition(Path(folder, event).exists, event)


def await_all(folder: str | Path, event: str, rank: int, ranks: int) -> None:
    """Say that something has happened to this rank, and wait until it has to all."""
    tell(folder, f"{event} {rank}")
    for other in range(ranks):
        await_event(folder, f"{event} {other}")


def await_condition(holds: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, but not for ever."""
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {LONGEST_S:g} s: {what}"
        time.sleep(0.01)
