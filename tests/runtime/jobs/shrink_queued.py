"""A job that loses a rank while operations are queued, and shrinks without waiting for them.

Usage: shrink_queued.py KIND. The queued operations are all-reduces of strided arrays, or functions of
`in_turn` that take a while. Shrinking within one of them is refused. The survivors print who is left.
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
    """Queue, lose a rank, shrink, and go on."""
    strided = sys.argv[1] == "strided"
    comm = weft.init(timeout=20)
    comm.barrier()
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)

    def reduce_slowly() -> None:
        time.sleep(0.005)
        comm.all_reduce(np.ones(1000, np.float32))

    handles = [
        comm.all_reduce(np.ones(2000, np.float32)[::2], async_op=True)
        if strided
        else comm.in_turn(reduce_slowly, async_op=True)
        for _ in range(20)
    ]
    within = comm.in_turn(comm.shrink, async_op=True)
    try:
        handles[0].wait()
    except weft.PeerLost:
        comm = comm.shrink()
    for handle in handles[1:]:
        try:
            handle.wait()
        except weft.RuntimeFailure:
            continue
        raise AssertionError("an operation behind one that failed was carried out")
    try:
        within.wait()
    except weft.RuntimeFailure as failure:
        assert "shrink was called within an operation" in str(failure), failure
    total = comm.all_reduce(np.ones(5))
    assert (total == comm.size).all()
    print(json.dumps({"survivors": comm.survivors}), flush=True)
    comm.barrier()
    comm.close()


main()
