"""Survivors of a lost rank go on: as docs/pytorch.md has it, and as the example does."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.jobs import WEFT, finish, start_ranks

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_shrink.py"

# What the reader of the block has: a number of steps, and functions that train and go back to a step.
GIVEN = """
import os, signal
import torch
import torch.distributed as dist
import weft

torch.set_num_threads(1)
steps, sums = 8, []

def train_step(step):
    x = torch.ones(1000)
    dist.all_reduce(x)
    sums.append((step, float(x[0])))
    if step == 3 and dist.get_rank() == 1 and dist.get_world_size() == 3:
        os.kill(os.getpid(), signal.SIGKILL)

def restore(step):
    assert dist.get_world_size() == 2
"""
TELLING = """
print(dist.get_rank(), dist.get_world_size(), sums[0], sums[-1], flush=True)
dist.destroy_process_group()
"""


def test_survivors_go_on_as_the_page_says(tmp_path: Path) -> None:
    page = (DOCS / "pytorch.md").read_text("utf-8")
    (block,) = (
        text
        for text in re.findall(r"```python\n(.*?)```\n", page, re.DOTALL)
        if "init_process_group(weft.init())" in text
    )
    assert "weft.torch.init_process_group(weft.init())" in (DOCS / "failures.md").read_text("utf-8")
    script = tmp_path / "train.py"
    script.write_text(GIVEN + block + TELLING, "utf-8")
    done = subprocess.run(
        [str(WEFT), "run", "-n", "3", "--keep-going", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "WEFT_FLIGHT_DIR": str(tmp_path)},
    )
    assert "[0] 0 2 (0, 3.0) (7, 2.0)\n" in done.stdout, done.stdout + done.stderr
    assert "[2] 1 2 (0, 3.0) (7, 2.0)\n" in done.stdout
    assert "rank 1 failed; the others went on" in done.stderr


def test_survivors_have_the_loss_of_a_run_with_the_same_members(tmp_path: Path) -> None:
    losses: list[float] = []
    for end in ("--kill", "--leave"):
        ranks = start_ranks(tmp_path, 3, EXAMPLE, end, "1", "--steps", "20", "--at", "10")
        (code, output), _, (other_code, other_output) = finish(ranks)
        assert (code, other_code) == (0, 0), output + other_output
        (loss,) = re.findall(r"^loss ([\d.]+), exactly", output, re.MULTILINE)
        losses.append(float(loss))
    # Not to the bit, as on the network of tests/lab: DeAR measures which gradients it had better send
    # together, and a sum of three has several orders.
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
