"""A rank that dies concerns only the part it is in.

Run by tests/runtime/test_engines.py.
"""

import os
import time

import numpy as np
from support.engine_rank import begin, say

import weft

comm = begin(timeout=30)
R, N = comm.rank, comm.size
part = comm.split(0 if R < 2 else 1)
part.all_reduce(np.ones(10, np.float32))
if R == 3:
    os.kill(os.getpid(), 9)
try:
    while R >= 2:
        part.all_reduce(np.ones(10, np.float32))
except weft.PeerLost as error:
    say("lost", error.rank, error.op.split()[0])
else:
    time.sleep(1)
    part.all_reduce(np.ones(10, np.float32))
    say("goes on")
os._exit(0)  # the process group of torch would wait for the dead rank
