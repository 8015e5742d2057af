"""Python blocks of the README, docs/runtime.md and docs/failures.md are run by real processes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from support.jobs import WEFT

import weft

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)

TRAINING = """
import os, signal
import numpy as np
import weft

comm, step = weft.init(), 0

def train_step(comm, step):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(np.ones(1000, np.float32))

"""


def blocks(page: str, word: str) -> str:
    """Return the blocks of a page that contain a word, one after the other."""
    found = [block for block in BLOCK.findall((ROOT / page).read_text("utf-8")) if word in block]
    assert found, word
    return "\n".join(found)


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(source, "utf-8")
    return subprocess.run(
        [str(WEFT), "run", *options, "train.py"],
        cwd=folder,
        env={**os.environ, "WEFT_FLIGHT_DIR": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_plan_of_the_readme_runs(tmp_path: Path) -> None:
    weft.plan("ring:2", "1KiB").save(tmp_path / "plan.weft")
    given = "import numpy as np\nimport weft\ngradients = np.ones(256, np.float32)\n"
    done = run(
        tmp_path, given + blocks("README.md", "comm = weft.init") + "print(gradients.sum())\n", "-n", "2"
    )
    assert sorted(done.stdout.splitlines()) == ["[0] 512.0", "[1] 512.0"], done.stderr


def test_the_collectives_and_messages_of_the_page_run(tmp_path: Path) -> None:
    source = blocks("docs/runtime.md", "comm.") + "print(part.size, float(into[0]))\n"
    done = run(tmp_path, source, "-n", "4")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\[\d\] 2 [\d.]+$", done.stdout, re.MULTILINE)) == 4


def test_the_control_plane_of_the_page_runs(tmp_path: Path) -> None:
    source = blocks("docs/runtime.md", "control_plane") + "print(len(control_plane.members))\n"
    done = run(tmp_path, source, "-n", "3")
    assert sorted(done.stdout.splitlines()) == ["[0] 3", "[1] 3", "[2] 3"], done.stderr


def test_survivors_shrink_as_the_page_on_failures_says(tmp_path: Path) -> None:
    source = TRAINING + blocks("docs/failures.md", "comm.shrink()") + "print(comm.rank, comm.survivors)\n"
    done = run(tmp_path, source, "-n", "3", "--keep-going")
    assert sorted(done.stdout.splitlines()) == ["[0] 0 (0, 2)", "[2] 1 (0, 2)"], done.stderr
