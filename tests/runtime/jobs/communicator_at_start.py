"""A plan is made at the start from the topology.

Run by tests/runtime/test_communicator.py.
"""

import sys

import numpy as np

import weft

comm = weft.init(topology=sys.argv[1], plan_time_limit=60)  # it ends when all was tried
ran = set()
for elements in (10, 100_000, 1_000_000):
    assert (comm.all_reduce(np.full(elements, comm.rank, np.float32)) == sum(range(comm.size))).all()
    ran.add(comm.last.algorithm)
assert (comm.broadcast(np.full(9, comm.rank)) == 0).all()
print("ran", *sorted(ran))
