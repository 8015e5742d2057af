"""A rank that is late is not taken for a cut.

Run by tests/lab/test_recovery.py.
"""

import sys
import time

import numpy as np

import weft

with weft.init(topology=sys.argv[1], algorithm="ring", timeout=60) as comm:
    if comm.rank == 2:
        time.sleep(9)
    array = np.full(2_000_000, comm.rank, np.int64)
    comm.all_reduce(array)
    assert (array == 6).all()
