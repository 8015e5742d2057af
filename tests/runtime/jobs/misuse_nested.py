"""A handler of signals calls the communicator within an operation: it is told, and nobody hangs.

Run by tests/runtime/test_misuse.py.
"""

import signal
import sys

import numpy as np
from support.events import await_event, tell

import weft

comm = weft.init(transport=sys.argv[1], timeout=30)
told = []


def interrupt(number, frame):
    del number, frame
    try:
        comm.all_reduce(np.ones(100))
    except weft.RuntimeFailure as error:
        told.append(str(error))
    tell(sys.argv[2], "interrupted")


comm.all_reduce(np.ones(4))
comm.all_reduce(np.ones(4))  # the way of operations that were made before
if comm.rank == 0:
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1)
else:
    await_event(sys.argv[2], "interrupted")
for elements in (4, 5):  # by the short way, and by the long one
    assert (comm.all_reduce(np.ones(elements)) == comm.size).all()
if comm.rank == 0:
    assert len(told) == 1, told
    assert "within an operation of the same thread" in told[0], told
comm.close()
print("told")
