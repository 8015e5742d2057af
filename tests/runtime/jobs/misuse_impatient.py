"""A rank that is patient is told who gave up waiting for whom.

Run by tests/runtime/test_misuse.py.
"""

import sys

import numpy as np
from support.events import await_all, await_event, tell

import weft

FOLDER = sys.argv[1]

comm = weft.init(timeout=30)
comm.barrier()
if comm.rank == 1:
    await_event(FOLDER, "given up")
try:
    comm.all_reduce(np.ones(100_000), timeout=1 if comm.rank == 0 else 30)
except weft.TimedOut as error:
    assert error.missing == (1,), error.missing
    assert comm.rank == 0 or 0 < error.seconds < 20, error.seconds
    print(error)
except weft.RuntimeFailure as error:
    print(error)
if comm.rank == 0:
    tell(FOLDER, "given up")
await_all(FOLDER, "told", comm.rank, comm.size)  # nobody is taken for lost because it has ended
