"""Ctrl-C is heard while C++ works."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

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
