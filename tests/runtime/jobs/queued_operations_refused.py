"""A wrong timeout is refused by the call and nothing is queued.

Run by tests/runtime/test_queued_operations.py.
"""

import numpy as np
from queued_operations_prelude import N, R, comm

import weft

a, b = np.full(4, 1.0), np.full(4, 100.0)
try:
    comm.all_reduce(a, async_op=True, timeout=-1 if R == 0 else 5)
except weft.InputError:
    assert R == 0
    comm.all_reduce(a, async_op=True)
comm.all_reduce(b, async_op=True).wait()
assert (a == N).all() and (b == 100 * N).all(), (a, b)
comm.close()
