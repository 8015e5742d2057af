"""Where the points of a sweep run, as ``--executor``, ``--jobs`` and ``--deadline`` say."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor


@dataclass(frozen=True, slots=True)
class SweepPlace:
    """The three options.

    Parameters
    ----------
    executor
        A kind of `weft.sweeps.open_executor`.
    jobs
        Processes on this machine; None for one for each processor.
    deadline_s
        Seconds after which a sweep is given up; None for never.
    """

    executor: str
    jobs: int | None
    deadline_s: float | None

    @contextmanager
    def open(self, points: int) -> Iterator[tuple[Executor, dict[str, Any]]]:
        """Open the executor for so many points; also give what a sweep on it is called with.

        An interrupt is heard by the sweep, which then raises `KeyboardInterrupt`.
        """
        from weft.sweeps import open_executor
        from weft.sweeps.executors import noting_interrupts

        jobs = self.jobs and min(self.jobs, max(points, 1))
        with noting_interrupts() as stopped, open_executor(self.executor, jobs) as executor:
            yield executor, {"stopped": stopped, "deadline_s": self.deadline_s}
