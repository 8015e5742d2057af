"""A receiver of another size is told.

Run by tests/runtime/test_split.py.
"""

import numpy as np
from support.engine_rank import begin, say

import weft

comm = begin(timeout=20)
R = comm.rank
comm.barrier()
try:
    if R == 0:
        comm.send(np.ones(5, np.float32), 1)
    else:
        comm.recv(np.ones(6, np.float32), 0)
except weft.DesyncError as error:
    assert error.rank == 1 - R
    say("told")
