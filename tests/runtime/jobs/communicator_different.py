"""A rank that calls something else is named.

Run by tests/runtime/test_communicator.py.
"""

import sys

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=10)
array = np.ones(1000, np.float32)
comm.all_reduce(array)
odd = {"size": np.ones(1001, np.float32), "dtype": np.ones(1000, np.float64), "op": array}[sys.argv[2]]
try:
    if comm.rank == 1:
        comm.all_reduce(odd, "max" if sys.argv[2] == "op" else "sum")
    else:
        comm.all_reduce(array)
except weft.DesyncError as error:
    assert (error.rank == 1) == (comm.rank != 1), error
    sys.exit(9)
