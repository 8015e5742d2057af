"""The only rank that is left is told that it can have lost nobody.

Run by tests/runtime/test_shrink.py.
"""

import os
import signal

import numpy as np

import weft

comm = weft.init(timeout=20)
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    comm.all_reduce(np.ones(100))
except weft.PeerLost:
    comm = comm.shrink()
try:
    comm.shrink()
except weft.InputError as error:
    print(error)
assert comm.all_reduce(np.ones(3)).sum() == 3
