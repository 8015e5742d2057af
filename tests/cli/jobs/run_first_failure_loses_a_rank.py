"""Survivors write their flight records before they are stopped.

Run by tests/cli/test_run_first_failure.py.
"""

import os
import signal

import numpy as np

import weft

comm = weft.init(timeout=30)
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    comm.all_reduce(np.ones(1000))
