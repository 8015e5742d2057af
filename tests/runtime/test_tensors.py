"""Torch's bfloat16, which numpy lacks: every op and collective, sizes that do not divide evenly."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import run_ranks

JOBS = Path(__file__).with_name("jobs")

HALVES = JOBS / "tensors_halves.py"


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_bfloat16_is_exact_in_every_op_and_collective(tmp_path: Path, transport: str) -> None:
    run_ranks(tmp_path, 3, HALVES, transport)
