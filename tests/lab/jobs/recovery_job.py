"""A job goes on without a cable that is cut.

Run by tests/lab/test_recovery.py.
"""

import sys
import time
from pathlib import Path

import numpy as np

import weft

topology, begun, cut, algorithm = sys.argv[1:]
chosen = {"algorithm": algorithm} if algorithm != "planned" else {}
with weft.init(topology=topology, timeout=60, **chosen) as comm:
    part = comm.split(0)
    ran, step = [], 0
    while step < 8:
        if step == 3 and comm.rank == 0 and not Path(cut).exists():
            Path(begun).touch()
            while not Path(cut).exists():
                time.sleep(0.01)
        array = np.arange(60_000, dtype=np.int64) + step * comm.rank
        try:
            comm.all_reduce(array)
        except weft.LinkLost as error:
            print("lost", error.ranks)
            step -= comm.repair()
            try:
                part.barrier()
            except weft.RuntimeFailure as error:
                print("part", error)
            continue
        assert (array == comm.size * np.arange(60_000) + step * sum(range(comm.size))).all()
        ran.append(comm.last.digest)
        step += 1
    print("schedules", len(set(ran)))
