"""Who calls something else is named by those who agree.

Run by tests/runtime/test_misuse.py.
"""

import sys

import numpy as np
from support.events import await_all

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
await_all(sys.argv[2], "told", comm.rank, comm.size)  # nobody is taken for lost because it has ended
