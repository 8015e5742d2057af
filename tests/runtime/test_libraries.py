"""The schedules that stand for Gloo and Open MPI add in the order of the real libraries, bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import run_engine

SAME_BITS = Path(__file__).with_name("jobs") / "libraries_same_bits.py"


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_a_real_all_reduce_of_the_library_has_the_bits_of_its_schedule(tmp_path: Path, engine: str) -> None:
    assert run_engine(engine, tmp_path, 3, SAME_BITS) == ["same bits"] * 3
