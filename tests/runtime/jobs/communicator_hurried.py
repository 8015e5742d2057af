"""Ranks that hurry ahead wait for those that have not begun.

Run by tests/runtime/test_communicator.py.
"""

import numpy as np

import weft

comm = weft.init(algorithm="double_binary_tree", timeout=20)
for number in range(1500):
    root = number % comm.size
    found = comm.broadcast(np.full(3, comm.rank, np.int32), root)
    assert (found == root).all()
    total = comm.reduce(np.full(3, comm.rank, np.int32), (root + 2) % comm.size)
    assert comm.rank != (root + 2) % comm.size or (total == sum(range(comm.size))).all()
