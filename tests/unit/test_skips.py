"""Under WEFT_CI=1 a skip fails the run, unless a machine cannot make the namespaces that a test needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import NO_NAMESPACES, without_privileges

TESTS = Path(__file__).parents[1]

MARKED = """
import pytest
from support.hosts import make_network

@pytest.mark.namespaces
def test_marked():
    with make_network(1):
        pass
"""
SKIPPED = """
import pytest

def test_skipped():
    pytest.skip({reason!r})
"""


def run(folder: Path, source: str, *, privileged: bool, under_ci: str = "1") -> tuple[int, str]:
    """Exit code and output of pytest with what every test of Weft's has, on one file."""
    (folder / "test_one.py").write_text(source, "utf-8")
    words = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", str(folder)]
    done = subprocess.run(
        words if privileged else without_privileges(*words),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "WEFT_CI": under_ci},
    )
    return done.returncode, done.stdout


def test_without_the_privileges_what_needs_namespaces_is_skipped_and_named(tmp_path: Path) -> None:
    code, said = run(tmp_path, MARKED, privileged=False)
    assert code == 0, said
    assert f"WEFT_CI=1: 1 not tested here: {NO_NAMESPACES}" in said


@pytest.mark.parametrize("privileged", [True, False])
def test_any_other_skip_fails_the_run(tmp_path: Path, privileged: bool) -> None:
    code, said = run(tmp_path, SKIPPED.format(reason="no time"), privileged=privileged)
    assert code == 1, said
    assert "WEFT_CI=1: 1 skipped, which counts as failed" in said
    assert run(tmp_path, SKIPPED.format(reason="no time"), privileged=privileged, under_ci="")[0] == 0


@pytest.mark.namespaces
def test_with_the_privileges_nothing_is_skipped_for_want_of_them(tmp_path: Path) -> None:
    code, said = run(tmp_path, MARKED, privileged=True)
    assert (code, "1 passed" in said) == (0, True), said
    code, said = run(tmp_path, SKIPPED.format(reason=f"{NO_NAMESPACES}: it says"), privileged=True)
    assert code == 1, said
