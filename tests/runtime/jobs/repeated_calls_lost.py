"""Calls that are repeated name the rank that is lost, and those queued behind fail for the same reason.

Run by tests/runtime/test_repeated_calls.py.
"""

import functools
import os
import signal

import numpy as np
from queued_operations_prelude import R, comm

import weft

array, other = np.ones(100, np.float32), np.ones(100, np.float32)


def prepare():
    made = []
    for one in (array, other):
        run = functools.partial(comm.all_reduce, one)
        run()
        made.append(comm.repeat(run, one, "sum"))
    return made


calls = comm.in_turn(prepare, async_op=True).wait()
assert all(call.start(20.0) for call in calls)
for call in calls:
    call.wait()
if R == 1:
    os.kill(os.getpid(), signal.SIGKILL)
assert all(call.start(20.0) for call in calls)
for call, kind in zip(calls, (weft.PeerLost, weft.RuntimeFailure), strict=True):
    for _ in range(2):
        try:
            call.wait()
        except kind as failure:
            assert "rank 1" in str(failure)
            assert call.error is failure
        else:
            raise AssertionError("a call without one of its ranks has ended well")
assert isinstance(comm.failure, weft.PeerLost)
assert not calls[0].start(20.0)
print("lost")
