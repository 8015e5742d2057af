"""Jobs of real processes in a torch process group."""

from __future__ import annotations

import os
from pathlib import Path

from support.jobs import JOB_S, Process, as_file, finish, start_script
from support.ports import free_port

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
    folder: Path,
    ranks: int,
    job: str | Path,
    *words: str,
    variables: dict[str, str] | None = None,
    finalise: bool = False,
) -> list[Process]:
    """Start a script on so many ranks as torchrun would, but nobody ends the others when one fails.

    With `finalise` their interpreters are taken apart at the end, for tests of the end of a process.
    """
    script = as_file(folder, job)
    place = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        **(variables or {}),
    }
    return [
        start_script(
            script,
            words,
            variables={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            finalise=finalise,
        )
        for rank in range(ranks)
    ]


def run_group(
    folder: Path,
    ranks: int,
    job: str | Path,
    *words: str,
    backend: str = "weft",
    variables: dict[str, str] | None = None,
    timeout: float = JOB_S,
    finalise: bool = False,
) -> list[str]:
    """What the ranks of a group print, by rank; all must end well."""
    whole = job if isinstance(job, Path) else PRELUDE + job + EPILOGUE
    started = start_group(folder, ranks, whole, backend, *words, variables=variables, finalise=finalise)
    ended = finish(started, timeout)
    assert [code for code, _ in ended] == [0] * ranks, "\n".join(output for _, output in ended)
    return [output for _, output in ended]
