"""Ranks need not agree on where their arrays lie: every mix of memory kinds gives the right result."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jobs import run_ranks

JOB = Path(__file__).with_name("jobs") / "memory_kinds.py"


@pytest.mark.parametrize(
    ("ranks", "transport", "algorithm"),
    [
        (2, "auto", ""),
        (2, "copy", ""),
        (2, "tcp", ""),
        (3, "copy", "ring"),
        pytest.param(4, "auto", "", marks=pytest.mark.slow),
        pytest.param(4, "copy", "", marks=pytest.mark.slow),
    ],
)
def test_every_mix_of_memory_kinds_is_exact(
    tmp_path: Path, ranks: int, transport: str, algorithm: str
) -> None:
    said = run_ranks(tmp_path, ranks, JOB, transport, algorithm, "1")
    assert int(said[0].split()[-1]) >= 900
