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
    """Write a report: where it comes from, how long it took since `began`, a summary, and every case.

    Each case is one line, so that a difference between two reports shows which.
    """
    seconds = round(time.monotonic() - began)
    text = json.dumps({**provenance(), "seconds": seconds, **summary}, indent=1)
    lines = ",\n".join(f"  {json.dumps(case)}" for case in cases)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{text[:-2]},\n "cases": [\n{lines}\n ]\n}}\n', "utf-8")
    return path


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
