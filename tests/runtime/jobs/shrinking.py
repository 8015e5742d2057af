"""A job that loses ranks in the middle of its work, and whose survivors go on without them.

Usage: shrinking.py TRANSPORT VICTIMS SIGNAL ALGORITHM TOPOLOGY. The victims send themselves the signal while
the others are in an operation. Survivors print what they know of each other, as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time

import numpy as np

import weft

ELEMENTS = 100_000


def reduce_once(comm: weft.Communicator) -> None:
    """All-reduce the ranks' numbers, and check the sum."""
    array = np.full(ELEMENTS, comm.rank + 1, np.float32)
    comm.all_reduce(array)
    assert (array == comm.size * (comm.size + 1) / 2).all()


def main() -> None:
    """Lose the victims, shrink, and go on."""
    transport, victims, sign, algorithm, topology = sys.argv[1:]
    logging.getLogger("weft").setLevel(logging.ERROR)
    comm = weft.init(
        transport=transport,
        timeout=20,
        algorithm=algorithm or None,
        topology=topology or None,
        plan_time_limit=1,
    )
    before, completed = comm.rank, 0
    part = comm.split(0)
    print("ready", flush=True)
    if str(comm.rank) in victims.split(","):
        hit = threading.Timer(0.1, os.kill, (os.getpid(), getattr(signal, sign)))
        hit.daemon = True
        hit.start()
    try:
        while True:
            reduce_once(comm)
            completed += 1
    except weft.RuntimeFailure as failure:
        named = getattr(failure, "rank", None)
    began = time.monotonic()
    comm = comm.shrink(plan_time_limit=1)
    seconds = time.monotonic() - began
    reduce_once(comm)
    try:
        part.barrier()
    except weft.RuntimeFailure:
        closed = True
    totals = comm.all_gather(np.array([completed - comm.ahead]))
    assert len(set(totals.tolist())) == 1, (completed, comm.ahead, totals)
    half = comm.split(comm.rank % 2)
    half.barrier()
    record = {
        "named": named,
        "before": before,
        "rank": comm.rank,
        "survivors": comm.survivors,
        "seconds": seconds,
        "closed": closed,
        "network": comm.network.name if comm.network else None,
    }
    comm.barrier()
    comm.close()
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
