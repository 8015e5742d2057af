"""Operations that move the same bytes are still told apart, by every rank."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.jobs import WEFT

JOB = Path(__file__).with_name("jobs") / "different_operations.py"


@pytest.mark.parametrize("transport", ["auto", "copy", "tcp"])
def test_two_different_operations_never_pass_for_one(transport: str) -> None:
    command = [str(WEFT), "run", "--plain", "-n", "2", str(JOB), transport]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["78", "78"]
