"""Ranks that all-reduce arrays without elements learn that another rank's array has some.

Run by tests/runtime/test_different_operations.py.
"""

import sys

import numpy as np

import weft

ODD = 2
comm = weft.init(transport=sys.argv[1], timeout=20)
comm.all_reduce(np.ones(0))
named = None
try:
    comm.all_reduce(np.ones(8 if comm.rank == ODD else 0))
except weft.DesyncError as error:
    named = error.rank
assert named is not None
assert (named == ODD) == (comm.rank != ODD), named
comm.close()
print("told")
