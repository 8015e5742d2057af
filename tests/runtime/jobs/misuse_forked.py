"""A forked child does not speak for its parent.

Run by tests/runtime/test_misuse.py.
"""

import os
import sys

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
R, N = comm.rank, comm.size
assert (comm.all_reduce(np.ones(100_000)) == N).all()
if R == 1:
    child = os.fork()
    if child == 0:
        try:
            comm.all_reduce(np.full(1000, 1000.0))
        except weft.RuntimeFailure as error:
            assert "was forked from rank 1" in str(error), error
            sys.exit(5)  # with all that runs at an exit
        sys.exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
for _ in range(3):
    assert (comm.all_reduce(np.ones(1000)) == N).all()
comm.close()
