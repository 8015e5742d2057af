"""A rank of a job on some engine in a test; `support.engines` starts it.

The engine comes first among the words of the program, as in ``mpi`` or ``native:tcp``; then a folder of the
test's own.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun does: more ranks than cores

import weft

ENGINE, _, TRANSPORT = sys.argv[1].partition(":")
FOLDER, *WORDS = sys.argv[2:]
_rank = -1


def begin(**options: Any) -> weft.Communicator:
    """Join the job, over the engine that the test names."""
    global _rank  # noqa: PLW0603 - a process is one rank
    if ENGINE == "torch":
        import torch.distributed as dist

        if not dist.is_initialized():
            rank, size = int(os.environ["WEFT_RANK"]), int(os.environ["WEFT_SIZE"])
            dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store", rank=rank, world_size=size)
            atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    if TRANSPORT:
        options["transport"] = TRANSPORT
    comm = weft.init(engine=ENGINE, **options)
    _rank = comm.rank
    return comm


def say(*words: object) -> None:
    """Tell the test something, in a line that names this rank."""
    print(f"<{_rank}", *words, ">", flush=True)
