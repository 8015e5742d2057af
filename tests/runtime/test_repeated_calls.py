"""Operations that are repeated without Python in the thread that carries them out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.jobs import finish, start_ranks

from weft.runtime.handles import Worker

JOBS = Path(__file__).with_name("jobs")


@pytest.mark.parametrize(("ranks", "transport"), [(1, "auto"), (2, "auto"), (3, "auto"), (2, "tcp")])
def test_repeated_calls_do_what_they_did_the_first_time(tmp_path: Path, ranks: int, transport: str) -> None:
    for code, output in finish(start_ranks(tmp_path, ranks, JOBS / "repeated_calls.py", transport)):
        assert code == 0, output
        assert "repeated" in output


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_repeated_calls_name_the_rank_that_is_lost(tmp_path: Path, transport: str) -> None:
    said = finish(start_ranks(tmp_path, 3, JOBS / "repeated_calls_lost.py", transport))
    for code, output in (said[0], said[2]):
        assert code == 0, output
        assert "lost" in output


def test_waiting_for_an_operation_lets_those_begin_that_are_queued_together() -> None:
    worker = Worker()
    worker.submit(lambda: None).wait()
    worker.queue.hold()
    worker.submit(lambda: None)
    worker.submit(lambda: None).wait(20)
    worker.queue.hold()
    worker.submit(lambda: None)
    closing = threading.Thread(target=worker.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


def test_operations_that_are_queued_together_begin_at_the_end_at_the_latest() -> None:
    worker, began = Worker(), threading.Event()
    worker.submit(lambda: None).wait()
    worker.queue.hold()
    handle = worker.submit(began.set)
    worker.queue.release()
    handle.wait(20)
    assert began.is_set()
    assert worker.pending == 0
    worker.close()
