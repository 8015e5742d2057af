"""One rank of a job does something wrong, and the launcher is to name it.

Usage: run_first_failure_job.py CULPRIT WHAT TIMEOUT.

Run by tests/cli/test_run_first_failure.py.
"""

import os
import signal
import sys
import time

import numpy as np

import weft

rank, culprit, what = int(os.environ["WEFT_RANK"]), int(sys.argv[1]), sys.argv[2]
bad = rank == culprit
if bad and what == "killed at the start":
    os.kill(os.getpid(), signal.SIGKILL)
if bad and what == "exit at the start":
    sys.exit(0)
if bad and what == "late at the start":
    time.sleep(30)
if bad and what == "raise at the start":
    raise ValueError("bad configuration")
comm = weft.init(timeout=float(sys.argv[3]))
array = np.ones(1000, np.float32)
comm.all_reduce(array)
if bad and what == "other operation":
    comm.broadcast(array)
if bad and what == "other size":
    comm.all_reduce(array[1:])
if bad and what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if bad and what == "raise":
    raise ValueError("a bug")
if bad and what == "exit":
    sys.exit(0)
if bad and what == "late":
    time.sleep(30)
if what == "in a part":
    comm = comm.split(rank % 2, key=-rank)
    if bad:
        raise ValueError("a bug")
if what == "chain":
    # Rank 0 leaves a part of 0 and 1, so rank 1 fails and leaves a part of 1 and 2, so rank 2 fails.
    first = comm.split(0 if rank < 2 else None)
    second = comm.split(0 if rank > 0 else None)
    if rank == 0:
        sys.exit(0)
    comm = first if rank == 1 else second
if what == "different operations":
    comm.all_reduce(array) if rank % 2 else comm.broadcast(array)
try:
    comm.all_reduce(array)
except weft.PeerLost:
    # A script that catches the error: its own exit code is still a consequence of the other rank's end.
    sys.exit(30 + rank)
