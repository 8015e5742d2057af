"""A Dask cluster on loopback: a scheduler and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_START_S = 60.0


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a cluster whose files are in a folder, give the address of its scheduler, and end it."""
    note = folder / "scheduler.json"
    here = ("--host", "127.0.0.1", "--no-dashboard")
    with ExitStack() as stack:
        stack.enter_context(
            _running(folder, "scheduler", "--port", "0", "--scheduler-file", str(note), *here)
        )
        end = time.monotonic() + _START_S
        while not note.exists() or not note.read_text("utf-8").strip():
            assert time.monotonic() < end, (folder / "scheduler.log").read_text("utf-8")
            time.sleep(0.1)
        address = json.loads(note.read_text("utf-8"))["address"]
        assert address.startswith("tcp://127.0.0.1:")
        for number in range(workers):
            options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(folder / f"worker-{number}"))
            stack.enter_context(_running(folder, "worker", address, *options, *here, name=f"w{number}"))
        yield address


@contextmanager
def _running(folder: Path, what: str, *words: str, name: str = "") -> Iterator[None]:
    """Run a command of Dask in a session of its own, and end it by its number."""
    with (folder / f"{name or what}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", what, *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
