"""Who calls something else is named by those who agree.

Run by tests/runtime/test_misuse.py.
"""

import sys
import time

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
comm.barrier()
try:
    if comm.rank == 0:
        comm.all_reduce(np.ones(3))
    else:
        comm.broadcast(np.ones(3), 0)
except weft.DesyncError as error:
    print("named", error.rank)
time.sleep(2)
