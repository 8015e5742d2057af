"""A rank that calls something else is named.

Run by tests/runtime/test_communicator.py.
"""

import sys

import numpy as np

import weft

transport, what, *algorithm = sys.argv[1:]
comm = weft.init(transport=transport, timeout=10, algorithm=algorithm[0] if algorithm else None)
array = np.ones(1000, np.float32)
comm.all_reduce(array)
odd = {"size": np.ones(1001, np.float32), "dtype": np.ones(1000, np.float64), "op": array}[what]
try:
    if comm.rank == 1:
        comm.all_reduce(odd, "max" if what == "op" else "sum")
    else:
        comm.all_reduce(array)
except weft.DesyncError as error:
    assert (error.rank == 1) == (comm.rank != 1), error
    sys.exit(9)
