"""How a rank tells the launcher why it fails: what travels through the pipe, and what is ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft import errors
from weft.runtime import find_place
from weft.runtime.launcher import failure_reports
from weft.runtime.launcher.failure_reports import FailureReport, FailureReporter, ReportPipe


@pytest.fixture
def pipe() -> Iterator[ReportPipe]:
    found = ReportPipe()
    yield found
    found.close()


def test_every_failure_becomes_a_report(pipe: ReportPipe) -> None:
    failures = {
        0: errors.PeerLost(3, "host", 77, "all_reduce #2"),
        1: errors.TimedOut("join", 5.0, [2, 3]),
        2: errors.DesyncError(1, "reduce #4", 2**64 - 1),
        3: errors.LinkLost((1, 2), "reduce #4"),
        4: errors.RuntimeFailure("something else"),
        5: errors.LinkCorrupted((1, -1), "reduce #4"),
    }
    for rank, failure in failures.items():
        FailureReporter.open(pipe.address, rank).tell(failure)
    assert pipe.read()
    assert pipe.latest == {
        0: FailureReport(0, "lost", (3,), "all_reduce #2"),
        1: FailureReport(1, "timed_out", (2, 3), "join"),
        2: FailureReport(2, "differs", (1,), "reduce #4", "f" * 16),
        3: FailureReport(3, "cut", (1, 2), "reduce #4"),
        4: FailureReport(4, "failed"),
        5: FailureReport(5, "corrupt", (1,), "reduce #4"),
    }


def test_a_rank_that_has_joined_again_takes_its_report_back(pipe: ReportPipe) -> None:
    reporter = FailureReporter.open(pipe.address, 1)
    reporter.tell(errors.PeerLost(0))
    reporter.tell_joined()
    pipe.read()
    assert pipe.latest == {}


def test_reports_of_some_of_the_ranks_name_ranks_of_the_job(pipe: ReportPipe) -> None:
    part = FailureReporter.open(pipe.address, 5).among([1, 3, 5, 7]).among([3, 2])
    part.tell(errors.PeerLost(0))
    part.tell(errors.LinkLost((1, -1), "reduce"))
    pipe.read()
    assert pipe.latest == {5: FailureReport(5, "cut", (5,), "reduce")}
    part.tell(errors.PeerLost(0))
    pipe.read()
    assert pipe.latest[5].named == (7,)


def test_the_longest_report_is_written_in_one_piece(pipe: ReportPipe) -> None:
    failure = errors.TimedOut("\N{SNOWMAN}" * 300, 5.0, range(960, 1024))
    FailureReporter.open(pipe.address, 1023).tell(failure)
    pipe.read()
    assert pipe.latest[1023].named == tuple(range(960, 1024))


def test_a_rank_never_waits_for_the_launcher() -> None:
    pipe = ReportPipe()
    writer = os.dup(pipe.writer)
    reporter = FailureReporter(writer, 1)
    for _ in range(2000):  # more than a pipe holds
        reporter.tell(errors.PeerLost(0, op="x" * 200))
    while not pipe.latest:
        pipe.read()
    assert pipe.latest[1].named == (0,)
    pipe.close()
    reporter.tell(errors.PeerLost(0))
    os.close(writer)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b'{"rank":1}',
        b'{"rank":-1,"kind":"failed"}',
        b'{"rank":99999999,"kind":"failed"}',
        b'{"rank":1,"kind":"promoted"}',
        b'{"rank":1,"kind":"lost","named":[-1]}',
        b'{"rank":1,"kind":"lost","named":' + str(list(range(65))).encode() + b"}",
        b'{"rank":1,"kind":"failed","more":1}',
        b'{"rank":1,"kind":"failed","op":"' + b"x" * 256 + b'"}',
        b'{"rank":1,"kind":"failed","op":"' + b"x" * 50_000,
        b"[" * 10_000,
    ],
)
def test_what_is_no_report_is_as_if_nothing_had_been_said(pipe: ReportPipe, line: bytes) -> None:
    os.write(pipe.writer, line + b"\n")
    FailureReporter.open(pipe.address, 2).tell(errors.RuntimeFailure("real"))
    for _ in range(20):
        pipe.read()
    assert pipe.latest == {2: FailureReport(2, "failed")}


@pytest.mark.parametrize("address", [None, "", "1", "x:y:z", "1:2:3", "999999:1:1", "1:2:3\n"])
def test_a_process_that_has_not_inherited_the_pipe_reports_nothing(address: str | None) -> None:
    FailureReporter.open(address, 0).tell(errors.PeerLost(1))


def test_a_file_that_has_the_number_of_the_pipe_is_not_written_to(tmp_path: Path) -> None:
    # As in a child that has inherited the variable but not the pipe.
    pipe = ReportPipe()
    address = pipe.address
    other = os.open(tmp_path / "precious", os.O_WRONLY | os.O_CREAT)
    os.dup2(other, pipe.writer)
    FailureReporter.open(address, 0).tell(errors.PeerLost(1))
    os.close(other)
    pipe.close()
    assert (tmp_path / "precious").read_bytes() == b""


def test_a_forked_child_does_not_report_for_its_parent(pipe: ReportPipe) -> None:
    reporter = FailureReporter.open(pipe.address, 0)
    child = os.fork()
    if child == 0:
        reporter.tell(errors.PeerLost(1))
        os._exit(0)
    os.waitpid(child, 0)
    pipe.read()
    assert pipe.latest == {}


def test_programs_that_a_rank_starts_do_not_inherit_the_pipe(pipe: ReportPipe) -> None:
    os.set_inheritable(pipe.writer, True)
    FailureReporter.open(pipe.address, 0)
    look = f"import os; os.fstat({pipe.writer})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", look], close_fds=False, capture_output=True, check=False, timeout=60
    )
    assert b"Bad file descriptor" in done.stderr


def test_the_pipe_is_named_in_the_environment_of_weft_run_only() -> None:
    said = {"WEFT_RANK": "0", "WEFT_SIZE": "1", failure_reports.VARIABLE: "5:6:7"}
    assert find_place(said).report is None
    assert find_place({**said, "WEFT_LAUNCHER": "weft"}).report == "5:6:7"
