"""A rank that is patient is told who gave up waiting for whom.

Run by tests/runtime/test_misuse.py.
"""

import time

import numpy as np

import weft

comm = weft.init(timeout=30)
comm.barrier()
if comm.rank == 1:
    time.sleep(2)
try:
    comm.all_reduce(np.ones(100_000), timeout=1 if comm.rank == 0 else 30)
except weft.TimedOut as error:
    assert error.missing == (1,), error.missing
    assert comm.rank == 0 or 1 < error.seconds < 20, error.seconds
    print(error)
except weft.RuntimeFailure as error:
    print(error)
time.sleep(2)
