"""Ranks that call different things are told so, also where the bytes would go the same way."""

from __future__ import annotations

from pathlib import Path

from support.groups import run_group

JOBS = Path(__file__).with_name("jobs")

DIFFERENT = JOBS / "desync_different.py"


def test_different_operations_do_not_pass_for_equal(tmp_path: Path) -> None:
    run_group(tmp_path, 2, DIFFERENT)
