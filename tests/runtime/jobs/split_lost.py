"""A part without the dead goes on.

Run by tests/runtime/test_split.py.
"""

import logging
import os
import signal
import time

import numpy as np
from support.engine_rank import begin, say

import weft

logging.getLogger("weft").setLevel(logging.ERROR)
comm = begin(timeout=20)
R = comm.rank
part = comm.split(0 if R in (0, 3) else 1)
comm.barrier()
if R == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if R in (0, 3):  # nothing has happened to these two
    for _ in range(20):
        assert (part.all_reduce(np.ones(1000)) == 2).all()
        time.sleep(0.02)
    say("unharmed")
else:
    try:
        part.barrier()
    except weft.PeerLost as error:
        say("lost", error.rank, error.pid > 0)
