"""Turns may be nested and abort may be called within an operation.

Run by tests/runtime/test_queued_operations.py.
"""

import numpy as np
from queued_operations_prelude import N, comm

import weft


def outer():
    comm.in_turn(lambda: comm.all_reduce(np.ones(3)))
    return comm.all_reduce(np.ones(3))


assert (comm.in_turn(outer, async_op=True).wait() == N).all()
assert (comm.in_turn(outer) == N).all()
comm.barrier()
comm.in_turn(comm.abort, async_op=True).wait()
try:
    comm.all_reduce(np.ones(3))
except weft.RuntimeFailure:
    print("refused")
