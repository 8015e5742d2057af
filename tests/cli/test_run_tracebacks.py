"""One traceback for each job: what ``weft run`` shows of the errors of many ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

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


def test_plain_output_has_every_traceback(tmp_path: Path) -> None:
    said = run(tmp_path, "--plain", str(JOB), "1")
    assert sum("Traceback" in line for line in said) == 4


def test_the_first_traceback_is_shown_whatever_it_ends_with() -> None:
    lines = [HEAD, *FRAMES, LOST, b"flight record: flight-r0.json"]
    count = TracebackCount()
    assert TracebackFilter(count).take(lines) == lines
    assert TracebackFilter(count).take(lines) == lines[-2:]


def test_what_torch_marks_with_a_rank_is_cut_as_well() -> None:
    count = TracebackCount()
    count.shown = True
    lines = [b"[rank2]: " + line for line in (HEAD, *FRAMES, LOST)]
    assert TracebackFilter(count).take(lines) == lines[-1:]


def test_lines_of_a_traceback_wait_for_its_error_and_are_not_lost_at_the_end() -> None:
    outputs = TracebackFilter(TracebackCount())
    assert outputs.take([b"before", HEAD, FRAMES[0]]) == [b"before"]
    assert outputs.take([FRAMES[1]], at_end=True) == [HEAD, *FRAMES]


def test_a_traceback_that_does_not_end_is_shown_after_a_thousand_lines() -> None:
    outputs = TracebackFilter(TracebackCount())
    shown = outputs.take([HEAD, *([FRAMES[0]] * 1500)])
    assert len(shown) == 1501
