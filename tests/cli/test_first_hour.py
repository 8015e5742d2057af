"""What somebody meets in the first hour: results before files that cannot be written, and time to go."""

from __future__ import annotations

import io
import re
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


@pytest.mark.parametrize("steps", [1, 3])
def test_a_bar_on_a_terminal_shows_the_time_to_go_once_it_is_known(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
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
        for done in range(1, steps + 1):
            bar("ring", done, 9)
        with bar.hidden():  # draws what is there
            pass
    assert " elapsed" in shown.getvalue()
    assert (" to go" in shown.getvalue()) == (steps > 1)
    assert "compare: ring" in shown.getvalue()


def test_llama_trains_on_64_gpus_of_a_preset_and_says_that_it_does_not_fit(weft: Run) -> None:
    # One schedule and large buckets: the default, which tries several of both, takes five times as long.
    quick = ("--policy", "ddp", "--algorithm", "hierarchical", "--fusion", "4GB", "--iterations", "2")
    outcome = weft("train", "dgx-h100:8", "--model", "llama2-7b", *quick)
    assert outcome.code == 0
    said = " ".join(outcome.out.split())
    assert "ddp for llama2-7b on dgx-h100:8, 64 ranks" in said
    assert "1 sample per rank on h100, bf16" in said
    assert "memory 129 GB a rank" in said
    assert "does not fit the 80 GB of h100" in said
    assert "needs 35.7 GB: --policy zero" in said
    assert "samples/s" in said


def test_the_tests_that_the_page_names_exist() -> None:
    tests = Path(__file__).parents[1]
    page = (tests.parent / "docs/internals/compare.md").read_text("utf-8")
    named = re.findall(r"`(test_\w+)`", page[page.index("## The first hour") :])
    assert len(named) > 25
    defined = "\n".join(path.read_text("utf-8") for path in tests.rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in defined] == []
