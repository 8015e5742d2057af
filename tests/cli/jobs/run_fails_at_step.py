"""A rank fails with an error of its own, or each does, in the middle of a loop of all-reduces."""

import sys

import numpy as np

import weft

comm = weft.init(timeout=60)
values = np.ones(1000)
for step in range(10):
    if step == 5 and (sys.argv[1] == "all" or comm.rank == int(sys.argv[1])):
        msg = f"a fault of rank {comm.rank}"
        raise ValueError(msg)
    comm.all_reduce(values)
