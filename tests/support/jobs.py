"""Jobs of real processes for tests: a script on so many ranks, through ``weft run``."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

WEFT = Path(sys.executable).with_name("weft")


def start_ranks(
    folder: Path,
    ranks: int,
    source: str,
    *words: str,
    variables: dict[str, str] | None = None,
    stdin: int | None = None,
) -> list[subprocess.Popen[str]]:
    """Start a script on so many ranks, without a launcher that would end the others when one fails."""
    script = folder / "job.py"
    script.write_text(source, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {
        "WEFT_SIZE": str(ranks),
        "WEFT_ADDRESS": "127.0.0.1",
        "WEFT_PORT": str(port),
        "WEFT_JOB": "test",
        "WEFT_SECRET": secrets.token_hex(32),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(script), *words],
            env={**os.environ, **job, **(variables or {}), "WEFT_RANK": str(rank)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process and take note of its end."""
    process.kill()
    process.communicate()


def finish(processes: list[subprocess.Popen[str]], timeout: float = 60) -> list[tuple[int, str]]:
    """Exit code and output of each; whoever is not done in time is killed, and none is left behind."""
    deadline = time.monotonic() + timeout
    found = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            found.append((process.returncode, output))
    finally:
        for process in processes:
            if process.returncode is None:
                end(process)
    return found


def run_job(
    folder: Path, ranks: int, source: str, *words: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a script on so many ranks and wait for it."""
    script = folder / "job.py"
    script.write_text(source, "utf-8")
    return subprocess.run(
        [str(WEFT), "run", "-n", str(ranks), str(script), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
