"""What users get from Weft's types: a script of theirs passes ``mypy --strict``, and wrong calls do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def check(path: Path, folder: Path) -> tuple[int, str]:
    """Run mypy as a user would, without the settings of this repository."""
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        str(folder),
        str(path),
    ]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout


def test_a_script_of_a_user_is_typed(tmp_path: Path) -> None:
    code, said = check(SCRIPT, tmp_path)
    assert code == 0, said


def test_wrong_calls_are_found(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(WRONG, "utf-8")
    code, said = check(script, tmp_path)
    assert code == 1, said
    found = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    assert found == {5, 7, 8, 9}, said
