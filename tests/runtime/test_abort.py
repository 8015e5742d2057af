"""A rank that aborts cancels what is under way, on itself and for those who wait for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.engines import run_engine
from support.jobs import finish, start_ranks

from weft.errors import RuntimeFailure
from weft.runtime.handles import Worker

JOBS = Path(__file__).with_name("jobs")

ABORTED = JOBS / "abort_aborted.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_a_rank_that_aborts_cancels_what_is_under_way(tmp_path: Path, transport: str) -> None:
    for code, output in finish(start_ranks(tmp_path, 3, ABORTED, transport, str(tmp_path / "aborted"))):
        assert code == 0, output


CLOSED = JOBS / "abort_closed.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_close_waits_for_the_operation_of_another_thread(tmp_path: Path, transport: str) -> None:
    variables = {"WEFT_FLIGHT_DIR": str(tmp_path)}
    for code, output in finish(
        start_ranks(tmp_path, 2, CLOSED, transport, str(tmp_path), variables=variables)
    ):
        assert code == 0, output


REFUSED = JOBS / "abort_refused.py"


def test_a_worker_that_ends_finishes_what_it_has_and_takes_nothing_more() -> None:
    worker, done = Worker(), list[int]()
    works = [worker.submit(lambda number=number: done.append(number)) for number in range(3)]
    worker.end(lambda: done.append(3))
    with pytest.raises(RuntimeFailure, match="another thread closed"):
        worker.submit(done.clear)
    worker.close()
    worker.close()
    assert done == [0, 1, 2, 3]
    assert all(work.is_completed() for work in works)
    Worker().close()


def test_a_worker_that_closes_names_the_operation_whose_callback_does_not_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.runtime.handles._CALLBACKS_WITHIN_S", 0.2)
    worker, begin, release = Worker(), threading.Event(), threading.Event()
    for name in ("all_reduce", "broadcast"):
        handle = worker.submit(begin.wait, name)
        wait = release.wait if name == "broadcast" else begin.wait
        handle.future.add_done_callback(lambda _, wait=wait: wait(30))
    begin.set()
    with pytest.warns(RuntimeWarning, match="callbacks of broadcast have not returned after 0.2 s"):
        worker.close()
    release.set()


def test_an_engine_that_cannot_cancel_says_so_and_goes_on(tmp_path: Path) -> None:
    run_engine("torch", tmp_path, 2, REFUSED)
