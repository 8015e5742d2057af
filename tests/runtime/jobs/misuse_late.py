"""Who did not come is named by all and told so.

Run by tests/runtime/test_misuse.py.
"""

import sys

import numpy as np
from support.events import await_all, await_event, tell

import weft

comm = weft.init(transport=sys.argv[1], timeout=20)
comm.barrier()
FOLDER, LATE = sys.argv[3], 2
if comm.rank == LATE:
    for rank in {*range(comm.size)} - {LATE}:
        await_event(FOLDER, f"given up {rank}")
try:
    comm.all_reduce(np.ones(int(sys.argv[2])), timeout=1.5)
except weft.TimedOut as error:
    print("missing", *error.missing)
except weft.RuntimeFailure as error:
    print(type(error).__name__, error)
tell(FOLDER, f"given up {comm.rank}")
try:
    comm.barrier()
except weft.RuntimeFailure as error:
    assert "of no further use" in str(error), error
else:
    sys.exit("it went on")
await_all(FOLDER, "told", comm.rank, comm.size)  # all live on, so that only what they say can be heard
