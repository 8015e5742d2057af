"""Training on emulated hosts that loses a rank: it goes on without it, or is started again.

In ``make test``, tests/torch/test_surviving.py and tests/cli/test_run_restarts.py have it without a network.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WEFT = Path(sys.executable).with_name("weft")
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


def run_example(folder: Path, example: str, *words: str, options: tuple[str, ...] = ()) -> str:
    """The loss of a run on three hosts, as its last line has it."""
    command = [WEFT, "lab", "run", "--plain", *options, "switch:3@bw=100Mbit/s", EXAMPLES / example, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_survivors_have_the_loss_of_a_run_with_the_same_members(tmp_path: Path) -> None:
    words = ("--steps", "20", "--at", "10")
    shrunk = run_example(tmp_path, "train_shrink.py", "--kill", "1", *words, options=("--keep-going",))
    assert shrunk.startswith("loss ")
    assert shrunk == run_example(tmp_path, "train_shrink.py", "--leave", "1", *words)


def test_a_job_that_is_started_again_has_the_loss_of_an_undisturbed_one(tmp_path: Path) -> None:
    steps = ("--steps", "60")
    killed = ("--checkpoint", "state.npz", "--kill-at", "40")
    restarted = run_example(tmp_path, "train_restart.py", *steps, *killed, options=("--restarts", "1"))
    assert restarted.startswith("loss ")
    assert restarted == run_example(tmp_path, "train_restart.py", *steps)
