"""Jobs for a flood: ranks that start and run when they are told to, with few descriptors if need be."""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.jobs import end, start_ranks

TESTS = Path(__file__).resolve().parents[1]
JOB = TESTS / "runtime" / "jobs" / "flooded.py"


@contextmanager
def waiting_job(
    ranks: int, targets: Path, secret: bytes, *, hold_s: float, files: int
) -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks that wait to be told to start.

    Parameters
    ----------
    targets
        Folder in which they announce their listeners.
    hold_s
        Seconds for which the last rank keeps the others waiting for its connections.
    files
        How many files each rank may have open.
    """
    variables = {"WEFT_SECRET": secret.hex(), "PYTHONPATH": str(TESTS)}
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory() as folder:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, before[1]), before[1]))
        try:
            started = start_ranks(
                Path(folder),
                ranks,
                JOB.read_text("utf-8"),
                str(targets),
                str(hold_s),
                variables=variables,
                stdin=subprocess.PIPE,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        try:
            for rank in started:
                assert hear(rank) == {"ready": True}
            yield started
        finally:
            for rank in started:
                end(rank)


def hear(rank: subprocess.Popen[str]) -> dict[str, Any]:
    """What a rank says next."""
    assert rank.stdout is not None
    line = rank.stdout.readline()
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        raise AssertionError(line + rank.stdout.read()) from None
    assert isinstance(found, dict)
    return found


def tell(rank: subprocess.Popen[str], line: str) -> None:
    """Give a rank an order."""
    assert rank.stdin is not None
    rank.stdin.write(line + "\n")
    rank.stdin.flush()


def start(ranks: list[subprocess.Popen[str]], wait: Callable[[], object]) -> dict[str, Any]:
    """Start a job, rank 0 first; seconds until all ranks, once all were told, had done an all-reduce.

    Parameters
    ----------
    wait
        Waits for as long as rank 0 is to be alone.
    """
    tell(ranks[0], "start")
    wait()
    for rank in ranks[1:]:
        tell(rank, "start")
    said = [hear(rank) for rank in ranks]
    errors = [one["error"] for one in said if "error" in one]
    if errors:
        return {"seconds": None, "errors": errors}
    seconds = max(one["ended"] for one in said) - max(one["began"] for one in said)
    return {"seconds": round(seconds, 3), "most_files": max(one["files"] for one in said)}
