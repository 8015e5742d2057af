"""What every report says about where it comes from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_WIDTH = 120


def provenance(*packages: str) -> dict[str, Any]:
    """Commit, date, machine, load and versions, at this moment.

    Parameters
    ----------
    packages
        Further ones whose versions matter.
    """
    names = ("numpy", "torch", "mpi4py", *packages)
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed_since": bool(_git("status", "--porcelain", "--", "src", "cpp", "tests", "benchmarks/*.py")),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 2) for load in os.getloadavg()],
        "kernel": platform.release(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in names}},
    }


def write_report(path: Path, began: float, summary: dict[str, Any], cases: list[dict[str, Any]]) -> Path:
    """Write a report: where it comes from, how long it took since `began`, a summary, and every case."""
    seconds = round(time.monotonic() - began)
    return write_json(path, {"seconds": seconds, **summary, "cases": cases})


def write_json(path: Path, document: dict[str, Any]) -> Path:
    """Write figures and where they come from to a file of few lines, with six digits each.

    Each list and each object that fits into a line is one, so that a difference between two reports shows
    which cases differ.
    """
    path.parent.mkdir(exist_ok=True)
    path.write_text(_format(_round({**provenance(), **document})) + "\n", "utf-8")
    return path


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _round(one) for key, one in value.items()}
    return [_round(one) for one in value] if isinstance(value, list | tuple) else value


def _format(value: Any, depth: int = 0) -> str:
    line = json.dumps(value)
    is_case = depth == 2 and isinstance(value, dict)
    if not isinstance(value, dict | list) or not value or is_case or len(line) + depth <= _WIDTH:
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_format(one, depth + 1)}" for key, one in value.items()]
    else:
        parts = [_format(one, depth + 1) for one in value]
    space = " " * (depth + 1)
    inside = f",\n{space}".join(parts)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{space}{inside}\n{space[:-1]}{last}"


def _git(*words: str) -> str:
    found = subprocess.run(
        ["git", *words], cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False
    )
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
