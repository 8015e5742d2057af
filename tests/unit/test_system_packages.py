"""tools/system-packages asks for no more than what is built or tested needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDING = ("bash", "env", "tr", "g++", "cmake", "make")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH of somebody who is not root and has what building needs, and neither apt-get nor a browser."""
    for name in BUILDING:
        found = shutil.which(name)
        assert found, name
        (tmp_path / name).symlink_to(found)
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n", "utf-8")
    (tmp_path / "id").chmod(0o755)
    return tmp_path


def ask(programs: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(ROOT / "tools" / "system-packages"), *words],
        env={"PATH": str(programs), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("words", [(), ("demo",)], ids=["build", "demo"])
def test_building_and_the_demo_need_no_browser(programs: Path, words: tuple[str, ...]) -> None:
    assert ask(programs, *words) == (0, "")


def test_tests_ask_for_a_browser(programs: Path) -> None:
    code, said = ask(programs, "tests")
    assert code == 1
    assert said.startswith("system: missing for the tests: ")
    assert "chromium (Debian's names)" in said


def test_building_names_what_is_missing(programs: Path) -> None:
    (programs / "cmake").unlink()
    code, said = ask(programs)
    assert code == 1
    assert said.startswith("system: missing to build Weft: cmake (Debian's names). Install them, as root")


def test_an_unknown_purpose_is_refused(programs: Path) -> None:
    assert ask(programs, "test") == (2, "system: test: expected tests, demo, or nothing\n")
