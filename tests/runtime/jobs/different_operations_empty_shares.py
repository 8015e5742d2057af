"""No rank takes an operation for done because its own share is empty, while another rank is elsewhere.

One element goes round a ring. A rank on its way has no share in the result, so it needs nothing but what it
passes on, and that comes from a rank that has met the odd one.

Run by tests/runtime/test_different_operations.py.
"""

import sys

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
R = comm.rank


def scatter(part, halves):
    part.reduce_scatter(np.ones(1))


def gather(part, halves):
    halves.gather(np.ones(1))


for call, odd, told in ((scatter, 0, 2), (gather, 3, 1)):
    part = comm.split(0, algorithm="ring")
    halves = part.halves(1, "float64")
    named = None
    try:
        if odd == R:
            part.all_reduce(np.ones(3))
        else:
            call(part, halves)
    except weft.DesyncError as error:
        named = error.rank
    assert told != R or named == odd, (call.__name__, R, named)
    part.close()
comm.close()
print("told")
