"""The queue of comparisons with real worker processes: whatever happens to one, every comparison ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import weft
from weft import limits
from weft.studio import worker_process
from weft.studio.api_bodies import CompareBody
from weft.studio.comparison_job import ComparisonJob
from weft.studio.comparison_queue import ComparisonQueue

RING = weft.load_topology("ring:4")
BODY = CompareBody(size="1KiB", algorithms=["ring"])
PATIENCE_S = 120.0


@asynccontextmanager
async def one_worker() -> AsyncIterator[ComparisonQueue]:
    queue = ComparisonQueue(1)
    queue.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield queue
    finally:
        await queue.close()


async def events_of(job: ComparisonJob) -> list[dict[str, Any]]:
    found = []
    while (line := await job.next_line()) is not None:
        found.append(json.loads(line))
    return found


async def compare(queue: ComparisonQueue) -> dict[str, Any]:
    """The last event of a short comparison."""
    return (await events_of(await queue.submit(RING, BODY)))[-1]


async def compare_until_done(queue: ComparisonQueue, expected: str) -> None:
    """Compare until it works again; until then every comparison ends with the expected error."""
    while (last := await compare(queue))["event"] == "error":
        assert expected in last["error"]
    assert last["event"] == "done"
    assert queue.outcomes["finished"] == 1
    assert queue.outcomes["cancelled"] == 0


CHATTY = """
import sys, time
print("{}", flush=True)
sys.stdin.readline()
print("{}", flush=True)
print("x" * 5_000, flush=True)
while True:
    time.sleep(0.01)
    print("x" * 5_000, flush=True)
"""


def test_a_worker_that_goes_on_after_an_event_that_is_too_large_can_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        monkeypatch.setattr(limits, "MAX_STUDIO_EVENT_BYTES", 1000)
        monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-c", CHATTY))
        worker, kill = worker_process.WorkerProcess(), worker_process._kill

        def kill_late(process: asyncio.subprocess.Process) -> None:
            time.sleep(0.2)  # it writes more meanwhile than is read at once
            kill(process)

        monkeypatch.setattr(worker_process, "_kill", kill_late)
        async with asyncio.timeout(PATIENCE_S):
            await worker.start()
            why = await worker.run(ComparisonJob(1, RING, BODY))
        assert why is not None
        assert "more than 1,000 bytes" in why
        assert worker.pid is None

    asyncio.run(check())


def test_an_event_that_is_too_large_fails_its_comparison_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        monkeypatch.setattr(limits, "MAX_STUDIO_EVENT_BYTES", 1000)
        async with one_worker() as queue:
            failed = await compare(queue)
            monkeypatch.undo()
            assert failed["event"] == "error"
            assert "more than 1,000 bytes" in failed["error"]
            await compare_until_done(queue, "bytes")

    asyncio.run(check())


def test_a_worker_that_cannot_be_started_fails_comparisons_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        monkeypatch.setattr(worker_process, "COMMAND", ("/nowhere/python",))
        async with one_worker() as queue:
            failed = await compare(queue)
            monkeypatch.undo()
            assert failed["event"] == "error"
            assert "cannot be started" in failed["error"]
            await compare_until_done(queue, "cannot be started")

    asyncio.run(check())


def test_a_comparison_that_is_cancelled_while_its_worker_is_replaced_ends_and_is_not_computed() -> None:
    async def check() -> None:
        async with one_worker() as queue:
            assert (await compare(queue))["event"] == "done"
            (worker,) = queue.workers
            for moment in ("between", "starting"):
                before = worker.pid
                assert before is not None
                os.kill(before, signal.SIGKILL)
                job = await queue.submit(weft.load_topology("torus:16x16"), CompareBody(size="1GiB"))
                # Between the old process and the new one there is none, and then one that only imports.
                while worker.pid == before or (moment == "starting" and worker.pid is None):
                    await asyncio.sleep(0)
                assert (worker.pid is None) is (moment == "between")
                job.cancel("edited")
                events = await events_of(job)
                assert [one["event"] for one in events] == ["accepted", "cancelled"]
                assert (await compare(queue))["event"] == "done"
                assert worker.pid not in (None, before)
            assert queue.outcomes == {"finished": 3, "cancelled": 2, "failed": 0}

    asyncio.run(check())
