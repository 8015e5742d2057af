"""A job that loses its last rank, and one more while the survivors shrink.

Usage: lost_while_shrinking.py VICTIM PHASE. The victim kills itself where it would connect to the other
survivors, at the barrier behind that, or where they make a new plan. The survivors print who is left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import NoReturn

import numpy as np

import weft
from weft.runtime.bootstrap.control_plane import ControlPlane
from weft.runtime.communicator import Communicator
from weft.runtime.engines import native_engine

PLACES = {
    "connect": (native_engine, "connect"),
    "barrier": (ControlPlane, "barrier"),
    "plan": (Communicator, "replan"),
}


def die(*_: object, **__: object) -> NoReturn:
    """Die as a process does whose machine is gone."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process goes on")


def reduce_once(comm: weft.Communicator) -> None:
    """All-reduce the ranks' numbers, and check the sum."""
    array = np.full(50_000, comm.rank + 1, np.float32)
    comm.all_reduce(array)
    assert (array == comm.size * (comm.size + 1) / 2).all()


def main() -> None:
    """Lose a rank, shrink, lose another one within, and go on."""
    victim, phase = int(sys.argv[1]), sys.argv[2]
    comm = weft.init(timeout=20, topology="ring:5", algorithm=None if phase == "plan" else "ring")
    if phase == "plan":
        comm.replan("ring:5", time_limit=1)
    if comm.rank == comm.size - 1:
        die()
    if comm.rank == victim:
        holder, name = PLACES[phase]
        setattr(holder, name, die)
    completed = 0
    try:
        while True:
            reduce_once(comm)
            completed += 1
    except weft.PeerLost:
        comm = comm.shrink(plan_time_limit=1)
    # A rank that had heard that all were connected learns of the second loss only here.
    for _ in range(2):
        try:
            reduce_once(comm)
            break
        except weft.PeerLost:
            before = comm.survivors
            comm = comm.shrink(plan_time_limit=1)
            assert before is not None
            assert comm.survivors is not None
            comm.survivors = tuple(before[rank] for rank in comm.survivors)
    reduce_once(comm)
    print(json.dumps({"survivors": comm.survivors, "rank": comm.rank}), flush=True)
    comm.barrier()
    comm.close()


main()
