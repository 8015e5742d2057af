"""``--time-limit`` holds while a topology loads and while a function of the user's own runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.running import Run

from weft.cli import time_limit

SCRIPT = """
def endless(topology):
    while True:
        pass
"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(time_limit, "_LEAST_S", 0.2)
    (tmp_path / "mine.py").write_text(SCRIPT, "utf-8")
    (tmp_path / "hangs.py").write_text("while True:\n    pass\n", "utf-8")


@pytest.mark.parametrize("verb", ["compare", "plan"])
def test_a_topology_that_takes_too_long_to_load_is_one_line(verb: str) -> None:
    words = [sys.executable, "-m", "weft", verb, "-", "--size", "1MiB", "--time-limit", "1s"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.wait(60) == 2  # of its standard input nothing ever comes
            assert process.stderr is not None
            said = process.stderr.read()
        finally:
            process.kill()
    assert said == "weft: error: the topology is not loaded within 5 s; give a larger --time-limit\n"


def test_a_function_that_does_not_end_is_left_out_with_its_line(weft: Run) -> None:
    words = ("--size", "1MiB", "--algorithm", "mine.py:endless", "--algorithm", "ring", "--time-limit", "3")
    outcome = weft("compare", "ring:4", *words, "--json")
    assert [row["algorithm"] for row in outcome.document["results"]] == ["ring"]
    (skipped,) = outcome.document["skipped"]
    assert skipped["algorithm"] == "mine.py:endless"
    assert re.search(r"mine\.py:[34]: LimitError: is not done within 3 s", skipped["reason"])


def test_a_script_that_does_not_end_is_one_line(weft: Run) -> None:
    words = ("--size", "1MiB", "--algorithm", "hangs.py:any", "--time-limit", "0.2")
    outcome = weft("compare", "ring:4", *words)
    assert outcome.code == 2
    assert re.search(r"hangs\.py:[12]: LimitError: is not done within 0.2 s", outcome.err)


def test_a_plan_that_asks_an_endless_function_ends(weft: Run) -> None:
    words = ("--size", "1MiB", "--algorithm", "mine.py:endless", "--algorithm", "ring", "--time-limit", "3s")
    outcome = weft("plan", "ring:4", *words)
    assert outcome.code == 0
    assert "ring" in outcome.out
