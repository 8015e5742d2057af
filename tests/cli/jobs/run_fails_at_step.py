"""A rank fails with an error of its own, or each does, or all do alike, in a loop of all-reduces."""

import sys

import numpy as np

import weft

comm = weft.init(timeout=60)
values = np.ones(1000)
for step in range(10):
    if step == 5 and sys.argv[1] == "alike":
        msg = "a fault of the program"
        raise ValueError(msg)
    if step == 5 and (sys.argv[1] == "all" or comm.rank == int(sys.argv[1])):
        msg = f"a fault of rank {comm.rank}"
        raise ValueError(msg)
    comm.all_reduce(values)
