"""Jobs of real processes for tests: a script on so many ranks, through ``weft run``."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from support.ports import free_port
from support.rank_pool import PooledRank, pool

Process = subprocess.Popen[str] | PooledRank

WEFT = Path(sys.executable).with_name("weft")


def start_ranks(
    folder: Path,
    ranks: int,
    source: str,
    *words: str,
    variables: dict[str, str] | None = None,
    stdin: int | None = None,
    own: bool = False,
) -> list[Process]:
    """Start a script on so many ranks, without a launcher that would end the others when one fails.

    They come from a pool, unless each is to be an interpreter of its own, for tests of its start or its end.
    """
    script = folder / "job.py"
    script.write_text(source, "utf-8")
    job = {
        "WEFT_SIZE": str(ranks),
        "WEFT_ADDRESS": "127.0.0.1",
        "WEFT_PORT": str(free_port()),
        "WEFT_JOB": "test",
        "WEFT_SECRET": secrets.token_hex(32),
    }
    return [
        start_script(
            script,
            words,
            variables={**os.environ, **job, **(variables or {}), "WEFT_RANK": str(rank)},
            stdin=stdin,
            own=own,
        )
        for rank in range(ranks)
    ]


def start_script(
    script: Path,
    words: Sequence[str],
    *,
    variables: dict[str, str],
    stdin: int | None = None,
    own: bool = False,
) -> Process:
    """Start one rank, from the pool or as an interpreter of its own."""
    if not own:
        torch = find_spec("torch")
        has_torch = torch is not None and torch.origin is not None  # tests/torch is no package of that name
        return pool(torch=has_torch and "torch" in script.read_text("utf-8")).start(
            script, words, variables=variables, stdin=stdin
        )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::FutureWarning", str(script), *words],
        env=variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: Process) -> None:
    """Kill a process and take note of its end."""
    process.kill()
    process.communicate()


def finish(processes: Sequence[Process], timeout: float = 60) -> list[tuple[int, str]]:
    """Exit code and output of each; whoever is not done in time is killed, and none is left behind."""
    deadline = time.monotonic() + timeout
    found = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            found.append((process.returncode, output))
    finally:
        for process in processes:
            if process.stdout is not None and not process.stdout.closed:
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
