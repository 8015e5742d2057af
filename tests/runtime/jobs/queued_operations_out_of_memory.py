"""A rank that runs out of memory in an operation is named by all.

Run by tests/runtime/test_queued_operations.py.
"""

import numpy as np
from queued_operations_prelude import R, comm

import weft


class Exhausted:
    def __getattr__(self, name):
        return getattr(engine, name)

    def run(self, *args):
        raise MemoryError("no memory for this operation")


comm.all_reduce(np.ones(3))
engine = comm._engine
if R == 1:
    comm._engine = Exhausted()
    comm._repeated.forget()
try:
    comm.all_reduce(np.ones(3))
    print("done")
except weft.RuntimeFailure as failure:
    print(type(failure).__name__, getattr(failure, "ranks", None), failure)
