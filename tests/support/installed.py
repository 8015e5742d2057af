"""Weft installed from a wheel or an sdist, into an environment that has nothing of the clone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_S = 1800
"""Seconds that compiling or downloading may take."""

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make")


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Weft in it, seen from an empty directory.

    Parameters
    ----------
    folder
        Of the environment.
    work
        Where commands run.
    path
        Where they find programs.
    """

    folder: Path
    work: Path
    path: str

    def run(self, program: str, *words: str) -> str:
        """Run a program of the environment, and return what it prints."""
        command = [str(self.folder / "bin" / program), *words]
        return run(command, timeout=300, cwd=self.work, env=clean_environment(self.path))


def clean_environment(path: str) -> dict[str, str]:
    """Return this process's environment without anything that leads to the clone or to its environment."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {**{name: value for name, value in os.environ.items() if name not in left_out}, "PATH": path}


def run(command: list[str], *, timeout: float, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command to its end, and return what it prints; all of it is shown if it fails."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


Install = Callable[..., Installed]
