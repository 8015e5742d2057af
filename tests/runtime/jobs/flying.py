"""A job in which rank 1 does something wrong after some operations, so that all ranks write flight records.

Usage: flying.py HOW TRANSPORT COUNT, where HOW is kill, freeze, close, slow, differs or signal, and COUNT the
number of operations before that.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import weft

CULPRIT = 1


def main() -> None:
    """Reduce, then let the culprit go wrong."""
    how, transport, count = sys.argv[1:]
    comm = weft.init(transport=transport, timeout=20)
    array = np.ones(50_000, np.float32)
    for _ in range(int(count)):
        comm.all_reduce(array)
        array[:] = 1
    if comm.rank == CULPRIT:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "close":
            comm.close()
            return
        if how == "differs":
            comm.all_gather(array)
        if how in ("slow", "signal"):
            time.sleep(6)
    if how == "signal":
        print("waiting", flush=True)
    comm.all_reduce(array)
    print("done", float(array[0]), flush=True)


if __name__ == "__main__":
    main()
