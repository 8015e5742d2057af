"""One traceback for each job: what ``weft run`` shows of the errors of many ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.jobs import WEFT

from weft.runtime.launcher.tracebacks import TracebackCount, TracebackFilter

JOB = Path(__file__).parent / "jobs/run_fails_at_step.py"
HEAD = b"Traceback (most recent call last):"
FRAMES = [b'  File "job.py", line 7, in <module>', b"    comm.all_reduce(values)"]
LOST = b"weft.errors.PeerLost: rank 1 was lost"


def run(folder: Path, *words: str) -> list[str]:
    """Standard error of a job of four ranks that fails."""
    done = subprocess.run(
        [WEFT, "run", "-n", "4", *words], capture_output=True, text=True, timeout=100, check=False, cwd=folder
    )
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_a_rank_that_fails_shows_its_traceback_and_the_others_one_line_each(tmp_path: Path) -> None:
    said = run(tmp_path, str(JOB), "1")
    assert sum("Traceback" in line for line in said) == 1
    assert "[1] ValueError: a fault of rank 1" in said
    assert not any("native_engine" in line for line in said)
    assert sum("weft.errors.PeerLost: rank 1 " in line for line in said) == 3


def test_errors_of_their_own_are_shown_whole_on_every_rank(tmp_path: Path) -> None:
    said = run(tmp_path, str(JOB), "all")
    whole = [line for line in said if "a fault of rank" in line]
    assert sum("Traceback" in line for line in said) == len(whole) >= 1


def test_an_error_that_all_ranks_share_is_shown_whole_once(tmp_path: Path) -> None:
    # Told to keep going, the launcher ends no rank before it has said what failed.
    said = run(tmp_path, "--keep-going", str(JOB), "alike")
    assert sum("Traceback" in line for line in said) == 1
    (first,) = (line[1] for line in said if "a fault of the program" in line and "ValueError" in line)
    others = sorted(set("0123") - {first})
    assert sorted(line for line in said if "the same" in line) == [
        f"[{other}] the same ValueError as rank {first}" for other in others
    ]


def test_plain_output_has_the_error_of_every_rank(tmp_path: Path) -> None:
    said = run(tmp_path, "--plain", "--keep-going", str(JOB), "alike")
    assert said.count("ValueError: a fault of the program") == 4


def test_plain_output_has_every_traceback(tmp_path: Path) -> None:
    said = run(tmp_path, "--plain", str(JOB), "1")
    assert sum("Traceback" in line for line in said) == 4


def test_the_first_traceback_is_shown_whatever_it_ends_with() -> None:
    lines = [HEAD, *FRAMES, LOST, b"flight record: flight-r0.json"]
    count = TracebackCount()
    assert TracebackFilter(count, 0).take(lines) == lines
    assert TracebackFilter(count, 0).take(lines) == lines[-2:]


def test_what_torch_marks_with_a_rank_is_cut_as_well() -> None:
    count = TracebackCount()
    count.shown = True
    lines = [b"[rank2]: " + line for line in (HEAD, *FRAMES, LOST)]
    assert TracebackFilter(count, 0).take(lines) == lines[-1:]


def test_an_error_at_another_place_or_with_another_message_is_shown_whole() -> None:
    count = TracebackCount()
    same = [HEAD, *FRAMES, b"AssertionError"]
    elsewhere = [HEAD, FRAMES[0].replace(b"7", b"8"), FRAMES[1], b"AssertionError"]
    other = [HEAD, *FRAMES, b"AssertionError: why"]
    assert TracebackFilter(count, 0).take(same) == same
    assert TracebackFilter(count, 1).take(elsewhere) == elsewhere
    assert TracebackFilter(count, 2).take(other) == other
    assert TracebackFilter(count, 3).take(same) == [b"the same AssertionError as rank 0"]
    assert TracebackFilter(count, 3).take([b"[rank3]: " + line for line in same]) == [
        b"the same AssertionError as rank 0"
    ]


def test_a_rank_that_fails_the_same_way_twice_shows_both() -> None:
    outputs, lines = TracebackFilter(TracebackCount(), 0), [HEAD, *FRAMES, b"ValueError: x"]
    assert outputs.take(lines) == outputs.take(lines) == lines


def test_a_traceback_without_an_error_is_not_compared() -> None:
    count, lines = TracebackCount(), [HEAD, *([FRAMES[0]] * 999)]
    assert TracebackFilter(count, 0).take(lines) == TracebackFilter(count, 1).take(lines) == lines


def test_lines_of_a_traceback_wait_for_its_error_and_are_not_lost_at_the_end() -> None:
    outputs = TracebackFilter(TracebackCount(), 0)
    assert outputs.take([b"before", HEAD, FRAMES[0]]) == [b"before"]
    assert outputs.take([FRAMES[1]], at_end=True) == [HEAD, *FRAMES]


def test_a_traceback_that_does_not_end_is_shown_after_a_thousand_lines() -> None:
    outputs = TracebackFilter(TracebackCount(), 0)
    shown = outputs.take([HEAD, *([FRAMES[0]] * 1500)])
    assert len(shown) == 1501


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD, b"not finished"],
        [HEAD, *FRAMES, b"not finished"],
        [HEAD, *FRAMES, b"not"],
        [HEAD, *FRAMES, b"3.5: a number"],
        [HEAD, b"finished"],
        [HEAD, *FRAMES, b"a.b. c"],
    ],
)
def test_what_only_looks_like_a_traceback_is_shown_by_every_rank(lines: list[bytes]) -> None:
    count = TracebackCount()
    assert [TracebackFilter(count, rank).take(lines) for rank in range(3)] == [lines] * 3
    real = [HEAD, *FRAMES, LOST]
    assert TracebackFilter(count, 3).take(real) == real  # the first of the job


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (b"KeyboardInterrupt", b"KeyboardInterrupt"),
        (b"job.Odd: a: b", b"job.Odd"),
        (b"__main__.f.<locals>.Odd: why", b"__main__.f.<locals>.Odd"),
        ("Größe: 3".encode(), "Größe".encode()),
        (b"AssertionError: ", b"AssertionError"),
    ],
)
def test_the_name_of_an_error_is_the_whole_of_it(error: bytes, name: bytes) -> None:
    count, lines = TracebackCount(), [HEAD, *FRAMES, error]
    assert TracebackFilter(count, 0).take(lines) == lines
    assert TracebackFilter(count, 1).take(lines) == [b"the same %s as rank 0" % name]
