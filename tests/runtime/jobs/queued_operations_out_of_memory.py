"""A rank that runs out of memory in an operation, or before it begins to send, is named by all.

Run by tests/runtime/test_queued_operations.py.
"""

import os

import numpy as np
from queued_operations_prelude import R, comm

import weft
from weft.runtime.buffers import Flat

WHERE = os.environ["WHERE"]


class Exhausted:
    def __getattr__(self, name):
        return getattr(engine, name)

    def run(self, *args):
        raise MemoryError("no memory for this operation")


def exhausted(*args):
    raise MemoryError("no memory for a copy")


comm.all_reduce(np.ones(3))
engine, array = comm._engine, np.ones(4)
if R == 1 and WHERE == "run":
    comm._engine = Exhausted()
    comm._repeated.forget()
elif R == 1:
    Flat.copy = exhausted
try:
    if WHERE == "run":
        comm.all_reduce(np.ones(3))
    else:
        comm.all_reduce(array[1:], out=array[:-1])
    print("done")
except weft.RuntimeFailure as failure:
    print(type(failure).__name__, getattr(failure, "ranks", None), failure)
