"""The one layout of result files, and where their figures come from.

    {
     "provenance": commit, date, duration, processor, cores, kernel, load and versions,
     "parameters": what was asked for,
     "summary": what the claims are about, where that is more than the results themselves (may be left out),
     "results": a list of objects, one for each case
    }

Where one file has several tables, ``"kind"`` says to which of them a result belongs. A field of the
provenance that nobody knows is null, and ``"note"`` says why; scripts that use this module know all of them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROVENANCE = (
    "commit",
    "uncommitted_changes",
    "date",
    "duration_s",
    "processor",
    "cores",
    "kernel",
    "load_before",
    "load_after",
    "versions",
    "note",
)
"""Fields that every provenance has. Loads are averages over 1, 5 and 15 minutes; old files may have one."""

PACKAGES = ("weft", "numpy", "torch", "mpi4py")
_WIDTH = 120


@dataclass(frozen=True)
class Start:
    """When a benchmark began, of which commit, and how busy the machine was then."""

    monotonic_s: float
    load: list[float]
    commit: str | None
    uncommitted_changes: bool | None


def start() -> Start:
    """Call this before anything is measured, and give it to `write`."""
    changed = _git("status", "--porcelain", "--", "src", "cpp", "tests", "benchmarks/*.py")
    found = None if changed is None else bool(changed)
    return Start(time.monotonic(), _load(), _git("rev-parse", "HEAD"), found)


def write(
    path: Path,
    started: Start,
    *,
    parameters: dict[str, Any],
    results: list[dict[str, Any]],
    summary: dict[str, Any] | None = None,
    versions: dict[str, str] | None = None,
    note: str | None = None,
) -> Path:
    """Write a result file.

    Each result is one line, so that a difference between two files shows which cases differ. Floats have six
    significant digits.

    Parameters
    ----------
    path
        The file; its folder is made.
    started
        From `start`.
    parameters
        What was asked for: sizes, seeds, repetitions.
    results
        One dictionary for each case, with units in the names of quantities.
    summary
        What the claims are about, computed from the results, or from cases that are too many to keep.
    versions
        Of peers, which are not packages of this Python.
    note
        How the machine was, such as which precedence the measurement had over other programs.
    """
    provenance = _provenance(started, versions or {})
    if note is not None:
        provenance["note"] = "; ".join(filter(None, [provenance["note"], note]))
    document: dict[str, Any] = {"provenance": provenance, "parameters": parameters}
    if summary is not None:
        document["summary"] = summary
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_results({**document, "results": results}), "utf-8")
    return path


def read(path: Path) -> dict[str, Any]:
    """Read a result file; its four parts."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def format_results(document: dict[str, Any]) -> str:
    """Format a whole file."""
    return _format(_round(document)) + "\n"


def _provenance(started: Start, versions: dict[str, str]) -> dict[str, Any]:
    packages = {name: _version(name) for name in PACKAGES}
    known = {name: version for name, version in packages.items() if version is not None}
    return {
        "commit": started.commit,
        "uncommitted_changes": started.uncommitted_changes,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "duration_s": round(time.monotonic() - started.monotonic_s, 1),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_before": started.load,
        "load_after": _load(),
        "versions": {"python": platform.python_version(), **known, **versions},
        "note": "git was not there to ask for the commit" if started.commit is None else None,
    }


def _load() -> list[float]:
    return [round(load, 2) for load in os.getloadavg()]


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _round(one) for key, one in value.items()}
    return [_round(one) for one in value] if isinstance(value, list | tuple) else value


def _format(value: Any, depth: int = 0, *, in_one_line: bool = False) -> str:
    line = json.dumps(value)
    short = len(line) + depth <= _WIDTH
    if not isinstance(value, dict | list) or not value or in_one_line or short:
        return line
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key)}: {_format(one, depth + 1, in_one_line=key == 'provenance')}"
            for key, one in value.items()
        ]
    else:
        parts = [_format(one, depth + 1, in_one_line=isinstance(one, dict)) for one in value]
    space = " " * (depth + 1)
    inside = f",\n{space}".join(parts)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{space}{inside}\n{space[:-1]}{last}"


def _git(*words: str) -> str | None:
    """What git says of this clone; None where there is no git."""
    if shutil.which("git") is None:
        return None
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    return found.stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
