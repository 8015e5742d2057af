"""A killed rank is named by every other.

Run by tests/runtime/test_communicator.py.
"""

import os
import signal
import sys
import threading
import time

import numpy as np

import weft

transport, victim, how = sys.argv[1], int(sys.argv[2]), getattr(signal, sys.argv[3])
comm = weft.init(transport=transport, algorithm=sys.argv[4], timeout=30)
array = np.ones(300_000, np.float32)
comm.all_reduce(array)
if comm.rank == victim:
    # In the middle of an operation: it runs in another thread.
    timer = threading.Timer(0.3, os.kill, (os.getpid(), how))
    timer.daemon = True
    timer.start()
began = time.monotonic()
last = began
try:
    while last < began + 25:
        comm.all_reduce(array)
        last = time.monotonic()
except weft.PeerLost as error:
    print("lost", error.rank, error.pid, f"{time.monotonic() - last:.2f}", error, flush=True)
    try:
        comm.all_reduce(array)
    except weft.RuntimeFailure as again:
        assert str(again) == f"this communicator is of no further use: {error}"
        sys.exit(7)
