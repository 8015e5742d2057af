"""Jobs of real processes over an engine: ``mpirun``, or a process group of gloo."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from support.jobs import finish, start_ranks
from support.ports import free_port

MPIRUN = Path(sys.executable).with_name("mpirun")
TORCHRUN = Path(sys.executable).with_name("torchrun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

PRELUDE = """
import atexit, os, sys, time
os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does: more ranks than cores
import numpy as np
import weft

ENGINE, FOLDER = sys.argv[1:3]
WORDS = sys.argv[3:]

def begin(**options):
    if ENGINE == "torch":
        import torch.distributed as dist
        if not dist.is_initialized():
            rank, size = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_SIZE"])
            dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store", rank=rank, world_size=size)
            atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    return weft.init(engine=ENGINE, **options)

def say(*words):
    print(f"<{R}", *words, ">", flush=True)
"""


def start_engine(
    engine: str, folder: Path, ranks: int, source: str, *words: str
) -> list[subprocess.Popen[str]]:
    """Start a script, after the prelude, on so many ranks: one process, or one ``mpirun``."""
    if engine == "torch":
        return start_ranks(folder, ranks, PRELUDE + source, engine, str(folder), *words)
    script = folder / "job.py"
    script.write_text(PRELUDE + source, "utf-8")
    job = {**AS_ROOT, "WEFT_PORT": str(free_port()), "WEFT_SECRET": secrets.token_hex(32)}
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
    engine: str, folder: Path, ranks: int, source: str, *words: str, timeout: float = 100
) -> list[str]:
    """What the ranks said, in rank order; all of them must end well."""
    ended = finish(start_engine(engine, folder, ranks, source, *words), timeout)
    output = "".join(part for _, part in ended)
    assert [code for code, _ in ended] == [0] * len(ended), output
    return said(output)


def said(output: str) -> list[str]:
    """The lines that ranks printed with ``say``, in rank order."""
    found = [line[1:-2].split(maxsplit=1) for line in output.splitlines() if line.startswith("<")]
    return [words for _, words in sorted((int(rank), words) for rank, words in found)]
