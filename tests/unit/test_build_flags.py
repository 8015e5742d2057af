"""How the extension is compiled: strictly by developers, leniently by users."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nanobind
import pytest

ROOT = Path(__file__).parents[2]


def compile_commands(build: Path, *options: str) -> list[str]:
    """Configure the extension and return the command of each of Weft's own sources."""
    cmake = shutil.which("cmake")
    assert cmake is not None
    fixed = (
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dnanobind_DIR={nanobind.cmake_dir()}",
        "-DSKBUILD_PROJECT_VERSION=0",
    )
    command = [cmake, "-S", str(ROOT), "-B", str(build), *fixed, *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    return [entry["command"] for entry in found if entry["file"].startswith(str(ROOT / "cpp"))]


@pytest.mark.parametrize(("options", "strict"), [((), False), (("-DWEFT_WERROR=ON",), True)])
def test_warnings_stop_developers_and_not_users(
    tmp_path: Path, options: tuple[str, ...], strict: bool
) -> None:
    commands = compile_commands(tmp_path, *options)
    assert len(commands) > 40
    assert all("-Wall" in command for command in commands)
    assert {"-Werror" in command for command in commands} == {strict}


def test_without_the_runtime_nothing_is_compiled_that_needs_linux(tmp_path: Path) -> None:
    commands = compile_commands(tmp_path, "-DWEFT_RUNTIME=OFF")
    assert len(commands) > 25
    for word in ("cpp/runtime/", "_runtime", "cpp/common/huge_pages.cpp", "WEFT_HUGE_PAGES"):
        assert not any(word in command for command in commands), word
