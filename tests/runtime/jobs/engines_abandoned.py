"""What arrives for an operation that was given up does not land in memory that is used for something else.

Rank 0 waits for a message of rank 1 in vain, drops the communicator, and fills the memory that becomes free.
Then rank 1 sends after all: MPI still has the receive.

Run by tests/runtime/test_engines.py, over MPI.
"""

import contextlib
import gc
import time

import numpy as np
import pytest
from mpi4py import MPI
from support.engine_rank import FOLDER, begin, say
from support.events import await_event, tell

import weft

BYTES, COUNT = 16, 20_000
comm = begin(timeout=20)
rank = comm.rank
if rank == 0:
    with pytest.raises(weft.TimedOut):
        comm.recv(np.zeros(4), 1, timeout=0.3)
    tell(FOLDER, "given up")
else:
    await_event(FOLDER, "given up")
    with contextlib.suppress(weft.RuntimeFailure):  # small messages leave, whether or not anybody takes them
        comm.send(np.ones(4), 0, timeout=5)
comm.close()
del comm
gc.collect()
others = [np.full(BYTES, 7, np.uint8) for _ in range(COUNT)] if rank == 0 else []
MPI.COMM_WORLD.Barrier()  # in which MPI makes progress
deadline = time.monotonic() + 1
while time.monotonic() < deadline:
    MPI.COMM_WORLD.Iprobe()
changed = [at for at, array in enumerate(others) if not (array == 7).all()]
assert not changed, f"{len(changed)} arrays were written to: {others[changed[0]]}"
say("untouched")
