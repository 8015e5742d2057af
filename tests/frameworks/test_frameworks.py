"""Frameworks train on a group of backend weft to the loss that they have on gloo.

Not a part of ``make test``: ``make frameworks`` installs them in an environment of its own, and runs this.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
RANKS = 2
TIMEOUT_S = 200  # a job takes 10 s on a quiet machine, most of it for importing a framework
TOLERANCE = 1e-6  # seen: 0, since a sum of two has one order only

pytestmark = pytest.mark.timeout(2 * TIMEOUT_S + 60)


class Outcome(NamedTuple):
    """What an example prints: which group has run, the loss, and what the framework itself has logged."""

    group: str
    loss: float
    logged: dict[str, float]
    output: str


def torchrun(example: str, backend: str, *words: str, restarts: int = 0) -> Outcome:
    options = ["--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", str(restarts)]
    job = subprocess.Popen(
        [*TORCHRUN, *options, str(EXAMPLES / example), "--backend", backend, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = job.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        job.terminate()  # it ends its ranks, which would keep the pipe open
        output, _ = job.communicate(timeout=30)
        pytest.fail(f"not done within {TIMEOUT_S} s: {output[-5000:]}")
    assert job.returncode == 0, output[-5000:]
    group = re.search(rf"^group (\w+), {RANKS} ranks", output, re.MULTILINE)
    loss = re.search(r"^loss ([\d.]+)$", output, re.MULTILINE)
    assert group is not None, output[-5000:]
    assert loss is not None, output[-5000:]
    line = re.search(r"^logged (.*)$", output, re.MULTILINE)
    pairs = (word.split("=") for word in line[1].split()) if line else ()
    return Outcome(group[1], float(loss[1]), {name: float(value) for name, value in pairs}, output)


def train_on_both(example: str, *words: str) -> tuple[Outcome, Outcome]:
    """What it gives on weft and on gloo, which must be the same."""
    weft, gloo = (torchrun(example, backend, *words) for backend in ("weft", "gloo"))
    assert (weft.group, gloo.group) == ("weft", "gloo")
    assert weft.loss == pytest.approx(gloo.loss, abs=TOLERANCE)
    assert weft.logged == pytest.approx(gloo.logged, abs=TOLERANCE)
    return weft, gloo


def test_lightning_logs_means_over_ranks() -> None:
    weft, _ = train_on_both("train_lightning.py")
    assert {"loss_step", "loss_epoch", "validation", "samples"} <= weft.logged.keys()
    assert weft.logged["samples"] == 256  # a sum over ranks of all samples
    assert weft.logged["loss_step"] == pytest.approx(weft.loss, abs=TOLERANCE)


def test_accelerate() -> None:
    train_on_both("train_accelerate.py")


def test_the_trainer_of_transformers() -> None:
    weft, _ = train_on_both("train_transformers.py")
    assert weft.loss < weft.logged["train"]  # it learns


@pytest.mark.parametrize("stage", range(4))
def test_deepspeed(stage: int) -> None:
    train_on_both("train_deepspeed.py", "--stage", str(stage))


def test_torchrun_starts_again_and_the_job_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    undisturbed = torchrun("train_elastic.py", "gloo", "--checkpoint", str(tmp_path / "whole.pt"))
    words = ("--checkpoint", str(tmp_path / "state.pt"), "--kill-at", "9")
    restarted = torchrun("train_elastic.py", "weft", *words, restarts=1)
    assert (undisturbed.group, restarted.group) == ("gloo", "weft")
    assert re.search(r"^attempt 1 goes on at step 8$", restarted.output, re.MULTILINE)
    assert restarted.loss == pytest.approx(undisturbed.loss, abs=TOLERANCE)


@pytest.mark.parametrize("source", ["accelerate", "transformers"])
def test_a_backend_by_name_is_refused_on_cpus(source: str, tmp_path: Path) -> None:
    # The page says so, and why the examples make the group first; when this fails, both may be simplified.
    code = {
        "accelerate": "from accelerate import Accelerator, InitProcessGroupKwargs as Keywords;"
        "Accelerator(cpu=True, kwargs_handlers=[Keywords(backend='weft')])",
        "transformers": "from transformers import TrainingArguments as Arguments;"
        "Arguments('.', use_cpu=True, ddp_backend='weft').device",
    }
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "-c", f"import weft.torch;{code[source]}"],
        env={**os.environ, **place, "MASTER_PORT": "1", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode != 0
    assert "Your assigned backend weft is not available, please use gloo" in ended.stderr
