"""Jobs of real processes for tests: a script on so many ranks, which come from a pool."""

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

_TESTS = Path(__file__).resolve().parents[1]
WEFT = Path(sys.executable).with_name("weft")
PATIENCE = float(os.environ.get("WEFT_TEST_PATIENCE", "1"))
"""How many times as long a job may take as usual: sanitizers slow it down (tools/sanitize)."""
JOB_S = 200.0
"""For a job that takes seconds: on a busy machine its ranks have a twentieth of a processor each."""


def start_ranks(
    folder: Path,
    ranks: int,
    job: str | Path,
    *words: str,
    variables: dict[str, str] | None = None,
    stdin: int | None = None,
    own: bool = False,
) -> list[Process]:
    """Start a script, a file or its text, on so many ranks; no launcher ends the others when one fails.

    They come from a pool, unless each is to be an interpreter of its own, for tests of its start or its end.
    """
    script = as_file(folder, job)
    place = {
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
            variables={**os.environ, **place, **(variables or {}), "WEFT_RANK": str(rank)},
            stdin=stdin,
            own=own,
        )
        for rank in range(ranks)
    ]


def as_file(folder: Path, job: str | Path) -> Path:
    """The file of a job; one that is given as text is written into a folder."""
    if isinstance(job, Path):
        return job
    script = folder / "job.py"
    script.write_text(job, "utf-8")
    return script


def start_script(
    script: Path,
    words: Sequence[str],
    *,
    variables: dict[str, str],
    stdin: int | None = None,
    own: bool = False,
    finalise: bool = False,
    network: str = "",
) -> Process:
    """Start one rank, from the pool or as an interpreter of its own.

    Those of the pool may be in a network namespace, and end at once, unless `finalise`: then the interpreter
    is taken apart, as that of any program is.
    """
    if not own:
        torch = find_spec("torch")
        has_torch = torch is not None and torch.origin is not None  # tests/torch is no package of that name
        wants_torch = "torch" in script.read_text("utf-8") or "torch" in words  # words may name an engine
        return pool(torch=has_torch and wants_torch).start(
            script, words, variables=variables, stdin=stdin, finalise=finalise, network=network
        )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::FutureWarning", str(script), *words],
        env={**variables, "PYTHONPATH": str(_TESTS)},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: Process) -> None:
    """Kill a process and take note of its end."""
    process.kill()
    process.communicate()


def finish(processes: Sequence[Process], timeout: float = JOB_S) -> list[tuple[int, str]]:
    """Exit code and output of each; whoever is not done in time is killed, and none is left behind."""
    deadline = time.monotonic() + PATIENCE * timeout
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


def run_ranks(folder: Path, ranks: int, job: str | Path, *words: str, timeout: float = JOB_S) -> list[str]:
    """What the ranks of a job print, by rank; all must end well."""
    ended = finish(start_ranks(folder, ranks, job, *words), timeout)
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(output for _, output in ended)
    return [output for _, output in ended]
