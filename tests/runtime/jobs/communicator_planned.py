"""A plan is what runs.

Run by tests/runtime/test_communicator.py.
"""

import sys

import numpy as np

import weft

comm = weft.init(plan=sys.argv[1], transport=sys.argv[2])
array = comm.all_reduce(np.full(300_000, comm.rank, np.float32))
assert (array == 6).all()
print("used", comm.last.algorithm, comm.last.segment_bytes, comm.last.size_bytes)
