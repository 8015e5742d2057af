"""The clock of long benchmarks: what it says, when it ends a measurement, and what is left then."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from weft.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bounded_run import BoundedRun


def test_a_part_is_not_begun_that_would_end_after_the_minutes() -> None:
    run = BoundedRun(minutes=10)
    assert not run.is_over(500)
    assert run.stopped is None
    assert run.is_over(700)
    assert run.stopped == "10 minutes were over"


def test_without_a_bound_nothing_is_too_long() -> None:
    run = BoundedRun()
    assert not run.is_over(1e9)


def test_progress_names_the_part_and_the_minutes_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    BoundedRun(minutes=1).tell("torus, batch 1 of 2", 90)
    assert "torus, batch 1 of 2; 1.5 min to go" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block_and_what_was_measured_is_kept(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run, results = BoundedRun(), []
    with run.stoppable():
        results.append(1)
        os.kill(os.getpid(), number)
        results.append(2)
    assert results == [1]
    assert run.stopped == "stopped by a signal"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failure_ends_the_block_and_is_the_reason() -> None:
    run = BoundedRun()
    with run.stoppable():
        raise InputError("gloo: torch is not installed")
    assert run.stopped == "failed: gloo: torch is not installed"
