"""A fixture of a module is made in one process, however many processes run tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

SHARED = """
import os
from pathlib import Path

import pytest

@pytest.fixture(scope="module")
def costly():
    Path(__file__).with_name(f"made-by-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(8))
def test_shared(costly, number):
    pass
"""


def test_the_tests_that_share_a_fixture_run_in_one_process(tmp_path: Path) -> None:
    # pytest 9.2 and pytest-xdist 3.8 ignore groups without a word: the tests then take a third longer.
    (tmp_path / "test_one.py").write_text(SHARED, "utf-8")
    words = ["-p", "conftest", "-p", "no:cacheprovider", "-q", "-n2", "--dist", "loadgroup", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stdout
    assert len(list(tmp_path.glob("made-by-*"))) == 1
