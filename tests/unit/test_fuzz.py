"""The fuzzing driver finds nothing in a moment, and finds what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "tools" / "fuzz.py"


def fuzz(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the driver; it finds what `folder` has to say about its modules, and leaves its findings there."""
    return subprocess.run(
        [sys.executable, str(FUZZ), "--seed", "1", "--folder", str(folder / "found"), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_a_moment_of_fuzzing_reaches_every_target_and_finds_nothing(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "--minutes", "0.045")
    assert (done.returncode, done.stderr) == (0, ""), done
    counts = dict(re.findall(r"^(\S+) +([\d,]+) +[\d,]+ +[\d,]+$", done.stdout, re.MULTILINE))
    assert len(counts) == 21
    assert "0" not in counts.values()
    assert "\n0 findings" in done.stdout


BROKEN = {
    "raise KeyError(data)": "KeyError",
    "os.kill(os.getpid(), 11)": "SIGSEGV",
    "time.sleep(60)": "takes longer than 0.5 s",
    "[b'x' * (200 << 20), time.sleep(60)]": "memory has grown by more than 100 MiB",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_reader_that_misbehaves_is_a_finding_that_can_be_repeated(tmp_path: Path, what: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(FUZZ.parent)!r})\n"
        "from fuzzing.target import Target\n"
        "from fuzzing.targets import TARGETS\n"
        f"def read(data): {what}\n"
        "TARGETS['spec'] = Target(TARGETS['spec'].make, read)\n",
        "utf-8",
    )
    done = fuzz(tmp_path, "--targets", "spec", "--minutes", "0.01", "--patience", "0.5", "--growth", "100")
    assert done.returncode == 1, done
    assert BROKEN[what] in done.stdout
    repeat = re.search(r"^repeat: (.*)$", done.stdout, re.MULTILINE)
    assert repeat is not None
    assert Path(repeat[1].split()[-1]).read_bytes()
