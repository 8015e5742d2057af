"""A slow link is planned around.

Run by tests/lab/test_adaptation.py.
"""

import sys
import time
from pathlib import Path

import numpy as np

import weft
from weft.probing import adapt

topology, begun, changed = sys.argv[1:]


def step(number):
    array = np.arange(60_000, dtype=np.int64) + number * comm.rank
    comm.all_reduce(array)
    assert (array == comm.size * np.arange(60_000) + number * sum(range(comm.size))).all()
    return comm.last.digest


with weft.init(topology=topology, timeout=60) as comm:
    for number in range(3):
        before = step(number)
    if comm.rank == 0:
        Path(begun).touch()
        while not Path(changed).exists():
            time.sleep(0.01)
    step(3)
    came = adapt(comm, size_bytes=480_000, seconds=3)
    faster = came.after_seconds < 0.5 * came.before_seconds
    print("then", came.plan is not None, faster, step(4) != before)
