"""Who did not come is named by all and told so.

Run by tests/runtime/test_misuse.py.
"""

import sys
import time

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
comm.barrier()
if comm.rank == 2:
    time.sleep(4)
try:
    comm.all_reduce(np.ones(int(sys.argv[2])), timeout=1.5)
except weft.TimedOut as error:
    print("missing", *error.missing)
except weft.RuntimeFailure as error:
    print(type(error).__name__, error)
try:
    comm.barrier()
except weft.RuntimeFailure as error:
    assert "of no further use" in str(error), error
else:
    sys.exit("it went on")
time.sleep(4)  # all live on, so that only what they say can be heard
