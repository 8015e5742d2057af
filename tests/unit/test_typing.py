"""What users get from Weft's types: a script of theirs passes ``mypy --strict``, and wrong calls do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "typed" / "user_script.py"

WRONG = """
import numpy as np
import weft

with weft.init(transport="carrier pigeon") as comm:
    array = np.ones(3)
    comm.all_reduce(array, "mean")
    comm.all_reduce(array).wait()
weft.compare("ring:4", "1MiB", "all_redcue")
"""


@pytest.mark.slow
def test_a_script_of_a_user_is_typed_and_wrong_calls_are_found(tmp_path: Path) -> None:
    """Both at once, because mypy reads all of Weft first; without the settings of this repository."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG, "utf-8")
    words = ["--strict", "--config-file", "", "--cache-dir", str(tmp_path), str(SCRIPT), str(wrong)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    errors = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    assert {Path(name).name for name, *_ in errors} == {"wrong.py"}, done.stdout
    assert {int(line) for _, line, *_ in errors} == {5, 7, 8, 9}, done.stdout
