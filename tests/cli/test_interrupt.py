"""Ctrl-C is heard while C++ works."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.jobs import PATIENCE

from weft.planning import load_plan

LONG = {
    "a simulation": 'weft.simulate(weft.algorithms.direct.all_reduce(weft.load_topology("torus:16x16")), '
    '"1GB", segment_bytes="64KB", sharing="fluid", max_work=None)',
    "routing": 'weft.load_topology("fattree:2048,2,32").routes(range(65536), range(65535, -1, -1))',
}


@pytest.mark.parametrize("work", LONG.values(), ids=LONG)
def test_a_long_run_ends_when_told_to(work: str) -> None:
    # Whoever runs the tests in the background has them ignore Ctrl-C, and children inherit that.
    program = f"""
import signal
import weft
signal.signal(signal.SIGINT, signal.default_int_handler)
print('ready', flush=True)
{work}
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


SLOW = f"""
from pathlib import Path
import weft

def slow(topology):
    Path("ready").touch()
    {LONG["a simulation"]}
"""


def test_a_plan_that_is_told_to_end_writes_the_best_so_far_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    words = ["plan", "ring:4", "--size", "1MiB", "--algorithm", "ring", "--algorithm", "mine.py:slow"]
    program = f"""
import signal
import sys
from weft.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main({[*words, "-o", "plan.weft"]}))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        try:
            deadline = time.monotonic() + 60 * PATIENCE
            while not (tmp_path / "ready").exists() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=60 * PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "weft: interrupted; this is the best plan so far\n" in errors
    assert "Traceback" not in errors
    assert "\nwrote plan.weft, " in said
    found = load_plan(tmp_path / "plan.weft")
    assert found.algorithm == "ring"
    assert not found.complete


@pytest.mark.parametrize("module", ["weft.errors", "click", "weft.cli.compare", "weft.cli.options"])
def test_ctrl_c_while_weft_imports_is_one_line(module: str) -> None:
    program = f"""
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from weft.cli import main
sys.exit(main(["compare", "switch:4"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "weft: interrupted\n")
