"""Comparisons that wait and run: a bounded queue in front of a few worker processes, and what became of each.

Every comparison that is accepted ends exactly once: finished, cancelled or failed. Cancelling ends it at once
for its client; its worker is told to stop, and is ended and replaced if it does not within half a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from weft import limits
from weft.studio.api_bodies import CompareBody, StudioRefusal
from weft.studio.comparison_job import ComparisonJob, Outcome
from weft.studio.worker_process import WorkerProcess

if TYPE_CHECKING:
    from weft.topology import Topology

_AGAIN_S: Final = 1.0
"""Seconds until a process that could not be started is tried again."""

_log: Final = logging.getLogger("weft.studio")


class ComparisonQueue:
    """A few workers and the comparisons that wait for them.

    Parameters
    ----------
    workers
        The number of processes that compare.
    """

    def __init__(self, workers: int) -> None:
        self.workers = tuple(WorkerProcess() for _ in range(workers))
        self._waiting: deque[ComparisonJob] = deque()
        self._running: dict[ComparisonJob, WorkerProcess] = {}
        self._arrived = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self.accepted = self.refused = 0
        self.outcomes: dict[Outcome, int] = {"finished": 0, "cancelled": 0, "failed": 0}

    @property
    def running(self) -> int:
        """Comparisons that a worker has; one that was cancelled is not among them."""
        return sum(job.outcome is None for job in self._running)

    @property
    def waiting(self) -> int:
        """Comparisons that wait for a worker."""
        return len(self._waiting)

    def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._serve(worker)) for worker in self.workers]

    async def close(self) -> None:
        """Cancel all comparisons and end the workers."""
        for job in [*self._waiting, *self._running]:
            job.cancel("the studio ends")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def submit(self, topology: Topology, body: CompareBody) -> ComparisonJob:
        """Accept a comparison.

        Raises
        ------
        StudioRefusal
            If too many wait already.
        """
        if len(self._waiting) >= limits.MAX_STUDIO_WAITING:
            self.refused += 1
            text = f"{len(self._waiting)} comparisons wait already, which is the most"
            raise StudioRefusal(429, text, "Try again in a second.")
        self.accepted += 1
        job = ComparisonJob(self.accepted, topology, body)
        job.on_end = self._note_end
        job.add(job.line("accepted", waiting=len(self._waiting)))
        self._waiting.append(job)
        async with self._arrived:
            self._arrived.notify()
        return job

    def _note_end(self, job: ComparisonJob) -> None:
        assert job.outcome is not None
        self.outcomes[job.outcome] += 1
        if job in self._waiting:
            self._waiting.remove(job)
        if job.outcome == "cancelled" and job in self._running:
            self._running[job].stop(job)

    async def _serve(self, worker: WorkerProcess) -> None:
        """Have a worker make comparisons, one after the other; no failure of one of them ends this."""
        try:
            while True:
                try:
                    await worker.start()
                except OSError as error:
                    self._report_start(error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                async with self._arrived:
                    await self._arrived.wait_for(lambda: self._waiting)
                    job = self._waiting.popleft()
                self._running[job] = worker
                try:
                    await self._run(worker, job)
                finally:
                    del self._running[job]
        finally:
            await worker.end()

    async def _run(self, worker: WorkerProcess, job: ComparisonJob) -> None:
        try:
            why = await worker.run(job)
        except Exception as error:  # noqa: BLE001 - a bug must not take the worker away from all later comparisons
            _log.exception("comparison %d", job.number)
            await worker.end()
            why = f"a bug in Weft: {type(error).__name__}: {error}"
        if why is not None:
            job.end_with("error", error=why, what_to_do="Choose fewer algorithms, or a smaller cluster.")

    def _report_start(self, error: OSError) -> None:
        """Say that a process cannot be started; comparisons that wait end if there is no other process."""
        why = f"the process that compares cannot be started: {error}"
        _log.error("%s", why)
        if all(worker.pid is None for worker in self.workers):
            for job in list(self._waiting):
                job.end_with("error", error=why, what_to_do="Try again; the machine is short of something.")
