"""What somebody meets in the first hour: results before files that cannot be written, and time to go."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from cli.running import Run
from rich.console import Console

from weft.cli import output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_training_prints_its_result_before_a_trace_that_cannot_be_written(weft: Run) -> None:
    outcome = weft("train", "ring:4", "--model", "resnet50", "--policy", "ddp", "--trace", "/dev/full")
    assert outcome.code != 0
    assert "iteration" in outcome.out
    assert "samples/s" in outcome.out
    assert "/dev/full" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_bar_on_a_terminal_shows_the_time_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()

    def on_terminal(**_: Any) -> Console:
        return Console(file=shown, force_terminal=True, width=100)

    monkeypatch.setattr("rich.console.Console", on_terminal)
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    bar = output.ProgressBar("compare")
    with bar.shown():
        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.join()
        bar("ring", 1, 2)
        with bar.hidden():  # draws what is there
            pass
    assert "to go" in shown.getvalue()
    assert "compare: ring" in shown.getvalue()
