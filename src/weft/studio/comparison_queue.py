"""Comparisons that wait and run: a bounded queue in front of a few worker processes, and what became of each.

Every comparison that is accepted ends exactly once: finished, cancelled or failed. Cancelling ends it at once
for whoever waits; its worker is told to stop, and is ended and replaced if it does not within half a second.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from weft import limits
from weft.studio.api_bodies import CompareBody, StudioRefusal
from weft.studio.comparison_worker import OVERTIME_S, WorkerOrder
from weft.topology.record import to_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.topology import Topology

Outcome = Literal["finished", "cancelled", "failed"]
_OUTCOMES: Final[dict[str, Outcome]] = {"done": "finished", "cancelled": "cancelled", "error": "failed"}
_START_S: Final = 60.0
_STOP_S: Final = 0.5
_WORKER: Final = (sys.executable, "-P", "-m", "weft.studio.comparison_worker")


class _EventHead(msgspec.Struct, frozen=True):
    """What the server looks at of an event; the rest passes through as it is."""

    event: str
    comparison: int = 0


class ComparisonJob:
    """One comparison, from being accepted to its last event.

    Parameters
    ----------
    number
        The number of the comparison; the first one has 1.
    topology, body
        The cluster, and what to compare on it.
    """

    def __init__(self, number: int, topology: Topology, body: CompareBody) -> None:
        self.number, self.topology, self.body = number, topology, body
        self.outcome: Outcome | None = None
        self.on_end: Callable[[ComparisonJob], None] = lambda _job: None
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()

    def add(self, line: bytes) -> None:
        """Add an event; there are few, one for each algorithm and three more."""
        if self.outcome is None:
            self._events.put_nowait(line)

    def end(self, outcome: Outcome, line: bytes) -> None:
        """Add the last event, unless there was one already."""
        if self.outcome is None:
            self.outcome = outcome
            self._events.put_nowait(line)
            self._events.put_nowait(None)
            self.on_end(self)

    def end_with(self, event: Literal["cancelled", "error"], **fields: str) -> None:
        """End with an event of the server's own."""
        self.end(_OUTCOMES[event], self.line(event, **fields))

    def cancel(self, reason: str) -> None:
        """End the comparison now, if it has not ended."""
        self.end_with("cancelled", reason=reason)

    def line(self, event: str, **fields: Any) -> bytes:
        """One event of this comparison as a line."""
        return msgspec.json.encode({"event": event, "comparison": self.number, **fields}) + b"\n"

    async def next_line(self) -> bytes | None:
        """The next event; None after the last. Comparisons have deadlines, so that this ends."""
        return await self._events.get()


class ComparisonQueue:
    """A few workers and the comparisons that wait for them.

    Parameters
    ----------
    workers
        The number of processes that compare.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._waiting: deque[ComparisonJob] = deque()
        self._running: dict[ComparisonJob, _Worker] = {}
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
        self._tasks = [asyncio.create_task(self._serve(_Worker())) for _ in range(self._workers)]

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

    async def _serve(self, worker: _Worker) -> None:
        try:
            while True:
                await worker.start()
                async with self._arrived:
                    await self._arrived.wait_for(lambda: self._waiting)
                    job = self._waiting.popleft()
                self._running[job] = worker
                try:
                    await worker.run(job)
                finally:
                    del self._running[job]
        finally:
            await worker.end()


class _Worker:
    """One worker process; it is started again when it has ended."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the process unless it runs; one that cannot start is tried again by and by."""
        while self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            # A session of its own: Ctrl-C in the terminal is for the server, which then ends its workers.
            self._process = await asyncio.create_subprocess_exec(
                *_WORKER, stdin=pipe, stdout=pipe, limit=limits.MAX_STUDIO_EVENT_BYTES, start_new_session=True
            )
            try:
                async with asyncio.timeout(_START_S):
                    ready = await self._read()
            except TimeoutError:
                ready = None
            if ready is None:
                await self.end()
                await asyncio.sleep(1)

    async def run(self, job: ComparisonJob) -> None:
        """Have a comparison made, and hand on its events until the last."""
        body = job.body
        order = WorkerOrder(
            job.number, to_record(job.topology), body.size, body.collective, body.algorithms, body.time_limit
        )
        last = None
        try:
            async with asyncio.timeout(body.time_limit + OVERTIME_S):
                await self._send(order)
                while (line := await self._read()) is not None:
                    last = _OUTCOMES.get(msgspec.json.decode(line, type=_EventHead).event)
                    if last is not None:
                        job.end(last, line)
                        return
                    job.add(line)
            why = "the process that compares has ended"
        except TimeoutError:
            why = f"this takes longer than the {body.time_limit:g} s that were given for it"
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if last is None:
                await self.end()
        job.end_with("error", error=why, what_to_do="Choose fewer algorithms, or a smaller cluster.")

    def stop(self, job: ComparisonJob) -> None:
        """Tell the process to stop a comparison, and end it unless it does so soon."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(WorkerOrder(job.number)) + b"\n")
        self._timer = asyncio.get_running_loop().call_later(_STOP_S, self._kill)

    async def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _send(self, order: WorkerOrder) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        # A process that has ended is noticed when its output ends.
        with suppress(ConnectionError):
            await self._process.stdin.drain()

    async def _read(self) -> bytes | None:
        """One line; None when the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return line if line.endswith(b"\n") else None
