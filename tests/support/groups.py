"""Jobs of real processes in a torch process group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from support.jobs import finish

PRELUDE = """
import os, sys, time
import torch
import torch.distributed as dist
import weft
import weft.torch

BACKEND, WORDS = sys.argv[1], sys.argv[2:]
dist.init_process_group(BACKEND)
R, N = dist.get_rank(), dist.get_world_size()
"""
EPILOGUE = """
dist.destroy_process_group()
"""


def start_group(
    folder: Path, ranks: int, source: str, *words: str, variables: dict[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """Start a script on so many ranks as torchrun would, but nobody ends the others when one fails."""
    script = folder / "job.py"
    script.write_text(source, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        **(variables or {}),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore::FutureWarning", str(script), *words],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def run_group(
    folder: Path,
    ranks: int,
    source: str,
    *words: str,
    backend: str = "weft",
    variables: dict[str, str] | None = None,
    timeout: float = 100,
) -> list[str]:
    """What the ranks of a group print, by rank; all must end well."""
    whole = PRELUDE + source + EPILOGUE
    ended = finish(start_group(folder, ranks, whole, backend, *words, variables=variables), timeout)
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(output for _, output in ended)
    return [output for _, output in ended]
