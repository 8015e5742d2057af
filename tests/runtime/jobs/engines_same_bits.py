"""Sums have the bits of the native runtime for every algorithm.

Run by tests/runtime/test_engines.py.
"""

import numpy as np
from support.engine_rank import begin, say

import weft
from weft.algorithms.registry import ALGORITHMS
from weft.runtime.communicator_inputs import load_inputs
from weft.runtime.schedule_selection import ScheduleSelector

native, comm = weft.init(), begin()
R, N = comm.rank, comm.size


def find(name):
    for spec in (f"fullmesh:{N}", "torus:2x2", "hosts:2,2"):
        try:
            chooser = ScheduleSelector(N, load_inputs(topology=spec, algorithm=name))
            chooser.choose("all_reduce", 1, 0)
        except weft.UnsupportedError:
            continue
        return chooser
    return None


ran = []
for line in ALGORITHMS.values():
    if (chooser := find(line.name)) is None:
        continue
    native.use(chooser)
    comm.use(chooser)
    for n, dtype in ((7, "float64"), (4097, "float32"), (4097, "float16")):
        data = np.random.default_rng(1000 * R + n).standard_normal(n).astype(dtype)
        ours, theirs = native.all_reduce(data.copy()), comm.all_reduce(data.copy())
        assert ours.tobytes() == theirs.tobytes(), (line.name, n, dtype)
        assert native.last == comm.last
    ran.append(line.name)
comm.close()
native.close()
say(*ran)
