"""A job whose last rank dies, and whose survivors lose one more to a freeze while they wait in shrink.

Usage: shrink_frozen.py FROZEN. The last survivor comes late: it freezes the other rank first, which waits in
shrink by then. The survivors print who is left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np

import weft


def main() -> None:
    """Lose a rank, freeze another one, and go on."""
    frozen = int(sys.argv[1])
    comm = weft.init(timeout=40)
    pids = comm.all_gather(np.array([os.getpid()], np.int64))
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.ones(10))
    except weft.PeerLost:
        if comm.rank == comm.size - 2:
            time.sleep(1)
            os.kill(int(pids[frozen]), signal.SIGSTOP)
    began = time.monotonic()
    comm = comm.shrink()
    seconds = time.monotonic() - began
    total = comm.all_reduce(np.ones(5))
    assert (total == comm.size).all()
    print(json.dumps({"survivors": comm.survivors, "seconds": seconds}), flush=True)
    comm.barrier()
    comm.close()


main()
