"""A rank whose arena is full takes part all the same.

Run by tests/runtime/test_queued_operations.py.
"""

import warnings

import numpy as np
from queued_operations_prelude import N, R, comm

import weft

warnings.simplefilter("ignore")
held = []
if R == 1:
    for size in (1 << bits for bits in range(19, 5, -1)):
        try:
            while True:
                held.append(comm.empty(size, np.uint8))
        except weft.LimitError:
            pass
for step in (1, 100):
    x = np.full(500_000, float(step), np.float32)
    comm.all_reduce(x)
    assert (x == N * step).all(), x[:2]
comm.barrier()
comm.close()
