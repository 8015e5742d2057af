"""A group ends: what was started is finished, or it says why not; nothing else hangs or is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.groups import run_group, start_group
from support.jobs import end, finish

JOBS = Path(__file__).with_name("jobs")

DESTROYED = JOBS / "endings_destroyed.py"


def test_what_is_under_way_when_a_group_is_destroyed_is_finished(tmp_path: Path) -> None:
    run_group(tmp_path, 3, DESTROYED, finalise=True)


LOST = JOBS / "endings_lost.py"


def read(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()).startswith("[W"):  # torch warns on the same stream
        pass
    assert line == f"{word}\n", line + process.stdout.read()


def test_what_cannot_be_finished_raises_where_it_is_waited_for(tmp_path: Path) -> None:
    waiter, victim = start_group(tmp_path, 2, LOST, "weft", finalise=True)
    try:
        for process in (waiter, victim):
            read(process, "ready")
        victim.kill()
        ((code, output),) = finish([waiter])
    finally:
        end(waiter)
        end(victim)
    assert code == 0, output
    told, warning, *spoiled = json.loads(output.splitlines()[-1])
    assert told == {"all_reduce": 1, "recv": 1}
    assert "that nobody has waited for has failed: rank 1" in warning
    assert spoiled == [True, True]


HOPELESS = JOBS / "endings_hopeless.py"


def test_messages_without_another_half_end_when_both_ranks_leave(tmp_path: Path) -> None:
    run_group(tmp_path, 2, HOPELESS, finalise=True)


ABORTED = JOBS / "endings_aborted.py"


def test_a_group_that_is_aborted_cancels_what_is_under_way(tmp_path: Path) -> None:
    run_group(tmp_path, 3, ABORTED, str(tmp_path / "store"), finalise=True)


AFTERWARDS = JOBS / "endings_afterwards.py"


def test_a_group_that_was_destroyed_says_so(tmp_path: Path) -> None:
    run_group(tmp_path, 2, AFTERWARDS, str(tmp_path / "store"), finalise=True)


OVER = JOBS / "endings_over.py"


def test_a_group_over_a_communicator_that_is_there_ends_like_any_other(tmp_path: Path) -> None:
    run_group(tmp_path, 2, OVER, str(tmp_path / "store"), finalise=True)


EXIT = JOBS / "endings_exit.py"

FAILED = JOBS / "endings_failed.py"


def test_a_process_that_exits_finishes_what_it_has_started(tmp_path: Path) -> None:
    ended = finish(start_group(tmp_path, 3, EXIT, "weft", finalise=True))
    assert [code for code, _ in ended] == [0] * 3, "\n".join(output for _, output in ended)


def test_a_process_that_exits_does_not_wait_for_ever(tmp_path: Path) -> None:
    first, other = start_group(tmp_path, 2, FAILED, "weft", finalise=True)
    try:
        ((code, output),) = finish([first])
    finally:
        end(first)
        end(other)
    assert code == 7, output
    assert "they were cancelled" in output


FORKED = JOBS / "endings_forked.py"


def test_a_forked_child_is_refused_at_once_and_its_parent_goes_on(tmp_path: Path) -> None:
    run_group(tmp_path, 2, FORKED, finalise=True)


# The store answers shortly after it was given up, while torch and Python are being taken down.
GIVEN_UP = """
from datetime import timedelta
from torch.distributed import TCPStore
from weft.runtime.foreign_calls import call_within

store = TCPStore("127.0.0.1", 0, 1, is_master=True)
try:
    call_within(0.0, "weft store", lambda: store.wait(["never"], timedelta(seconds=2.1)))
except TimeoutError:
    print("given up")
"""


def test_a_process_that_ends_is_not_aborted_by_a_store_that_answers_late() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", GIVEN_UP], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr[-500:]
    assert ended.stdout == "given up\n"
