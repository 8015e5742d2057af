"""Jobs of real processes over an engine: ``mpirun``, or a process group of gloo."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.jobs import JOB_S, Process, finish, start_ranks
from support.ports import free_port

MPIRUN = Path(sys.executable).with_name("mpirun")
TORCHRUN = Path(sys.executable).with_name("torchrun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start_engine(engine: str, folder: Path, ranks: int, script: Path, *words: str) -> Sequence[Process]:
    """Start a job that uses `support.engine_rank`: a process for each rank, or one ``mpirun``.

    Parameters
    ----------
    engine
        ``mpi``, ``torch``, or ``native:`` and a transport.
    """
    if engine != "mpi":
        return start_ranks(folder, ranks, script, engine, str(folder), *words)
    job = {**AS_ROOT, "WEFT_PORT": str(free_port()), "WEFT_SECRET": secrets.token_hex(32)}
    job["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    command = [MPIRUN, "--oversubscribe", "-n", str(ranks), sys.executable, "-m", "mpi4py", script]
    return [
        subprocess.Popen(
            [*map(str, command), engine, str(folder), *words],
            env={**os.environ, **job},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    ]


def run_engine(
    engine: str, folder: Path, ranks: int, script: Path, *words: str, timeout: float = JOB_S
) -> list[str]:
    """What the ranks said, in rank order; all of them must end well."""
    ended = finish(start_engine(engine, folder, ranks, script, *words), timeout)
    output = "".join(part for _, part in ended)
    assert [code for code, _ in ended] == [0] * len(ended), output
    return said(output)


def said(output: str) -> list[str]:
    """The lines that ranks printed with ``say``, in rank order."""
    found = [line[1:-2].partition(" ") for line in output.splitlines() if line.startswith("<")]
    return [words for _, words in sorted((int(rank), words) for rank, _, words in found)]
