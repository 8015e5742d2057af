"""Ranks need not agree on where their arrays lie: every mix of memory kinds gives the right result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.jobs import WEFT

JOB = Path(__file__).with_name("jobs") / "memory_kinds.py"


@pytest.mark.parametrize(
    ("ranks", "transport", "algorithm"),
    [
        (2, "auto", ""),
        (2, "copy", ""),
        (2, "tcp", ""),
        (3, "copy", "ring"),
        (4, "auto", ""),
        (4, "copy", ""),
    ],
)
def test_every_mix_of_memory_kinds_is_exact(ranks: int, transport: str, algorithm: str) -> None:
    command = [str(WEFT), "run", "--plain", "-n", str(ranks), str(JOB), transport, algorithm, "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 900
