"""A worker of the studio as the server sees it: its process, which is started again whenever it has ended."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.errors import LimitError
from weft.studio.comparison_job import OUTCOMES
from weft.studio.comparison_worker import OVERTIME_S, WorkerOrder
from weft.topology.record import to_record

if TYPE_CHECKING:
    from weft.studio.comparison_job import ComparisonJob

COMMAND: Final = (sys.executable, "-P", "-m", "weft.studio.comparison_worker")
_START_S: Final = 60.0
_STOP_S: Final = 0.5
_END_S: Final = 10.0
_log: Final = logging.getLogger("weft.studio")


class _EventHead(msgspec.Struct, frozen=True):
    """What the server looks at of an event; the rest passes through as it is."""

    event: str
    comparison: int = 0


class WorkerProcess:
    """One process that compares; there is none before the first start, and none between two of them."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._taken: ComparisonJob | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process unless it runs; one that does not become ready is tried again by and by.

        Raises
        ------
        OSError
            If the machine can start no process.
        """
        while self._process is None or self._process.returncode is not None:
            await self.end()
            pipe = asyncio.subprocess.PIPE
            # A session of its own: Ctrl-C in the terminal is for the server, which then ends its workers.
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=pipe, stdout=pipe, limit=limits.MAX_STUDIO_EVENT_BYTES, start_new_session=True
            )
            try:
                async with asyncio.timeout(_START_S):
                    ready = await self._read()
            except TimeoutError:
                ready = None
            if ready is None:
                await self.end()
                await asyncio.sleep(1)

    async def run(self, job: ComparisonJob) -> str | None:
        """Have a comparison made, and hand on its events until the last.

        Returns
        -------
        str or None
            Why there is no last event; None if there is one, or nobody wants it any more.
        """
        limit_s = job.body.time_limit
        try:
            async with asyncio.timeout(limit_s + OVERTIME_S):
                why = await self._carry_out(job)
        except TimeoutError:
            why = f"this takes longer than the {limit_s:g} s that were given for it"
        except OSError as error:
            why = f"the process that compares cannot be started: {error}"
        except LimitError as error:
            why = str(error)
        finally:
            self._taken = None
            if self._timer is not None:
                self._timer.cancel()
        if why is not None:
            await self.end()
            if job.outcome is None:
                _log.error("comparison %d: %s", job.number, why)
        return why

    async def _carry_out(self, job: ComparisonJob) -> str | None:
        if not await self._is_taken(job):
            # The process had ended before, which nobody notices as long as it has nothing to do.
            await self.end()
            await self.start()
            if job.outcome is not None or not await self._is_taken(job):
                return None if job.outcome is not None else "the process that compares has ended"
        while (line := await self._read()) is not None:
            last = OUTCOMES.get(msgspec.json.decode(line, type=_EventHead).event)
            if last is not None:
                job.end(last, line)
                return None
            job.add(line)
        return "the process that compares has ended"

    def stop(self, job: ComparisonJob) -> None:
        """Tell the process to stop a comparison that it has, and end it unless it does so soon."""
        process = self._process
        if process is None or process.stdin is None or self._taken is not job:
            return  # `run` sees that nobody wants the comparison before it gives it to the next process
        process.stdin.write(msgspec.json.encode(WorkerOrder(job.number)) + b"\n")
        self._timer = asyncio.get_running_loop().call_later(_STOP_S, _kill, process)

    async def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_END_S):
                # What nobody reads stops the reading of its pipe, whose end `wait` then waits for in vain.
                await process.stdout.read()
                await process.wait()
        except TimeoutError:
            _log.error("process %d has been killed, but something keeps its output open", process.pid)

    async def _is_taken(self, job: ComparisonJob) -> bool:
        """Send an order, and return whether the process says that it has begun; else it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        body = job.body
        order = WorkerOrder(
            job.number, to_record(job.topology), body.size, body.collective, body.algorithms, body.time_limit
        )
        self._taken = job
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        # A process that has ended is noticed when its output ends.
        with suppress(ConnectionError):
            await self._process.stdin.drain()
        if await self._read() is not None:
            return True
        self._taken = None
        return False

    async def _read(self) -> bytes | None:
        """One line; None when the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError as error:  # what a StreamReader makes of a line that is too long
            limit = f"{limits.MAX_STUDIO_EVENT_BYTES:,}"
            raise LimitError(f"an event of the comparison has more than {limit} bytes") from error
        return line if line.endswith(b"\n") else None


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
