"""Speeds that a test measures on the machine it runs on, which others may use too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

ATTEMPTS = 3


def measure_within(measure: Callable[[], Found], complain: Callable[[Found], list[str]]) -> Found:
    """Measure up to three times, until no speed is out of its bounds, and return what was found then.

    A process that waits for a processor while something is timed measures the machine and not what the test
    is about. Such waits only make things slower, so one attempt within the bounds shows that the code is
    right, while wider bounds would show less. What does not depend on speeds is no matter of attempts:
    `measure` asserts it each time.

    Parameters
    ----------
    measure
        One whole measurement.
    complain
        What it found that is out of bounds, in words.
    """
    attempts = []
    for _ in range(ATTEMPTS):
        found = measure()
        wrong = complain(found)
        if not wrong:
            return found
        attempts.append("; ".join(wrong))
    tried = "\n".join(f"attempt {number}: {wrong}" for number, wrong in enumerate(attempts, 1))
    raise AssertionError(f"out of bounds in each of {ATTEMPTS} attempts\n{tried}")
