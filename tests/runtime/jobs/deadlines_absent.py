"""No operation waits for ever for a rank that takes no part.

Run by tests/runtime/test_deadlines.py.
"""

import sys

import numpy as np
import pytest
from support.events import await_event, tell

import weft

CALLS = {
    "all_reduce": lambda comm, x: comm.all_reduce(x, timeout=0.3),
    "reduce": lambda comm, x: comm.reduce(x, 0, timeout=0.3),
    "broadcast": lambda comm, x: comm.broadcast(x, 1, timeout=0.3),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x, timeout=0.3),
    "all_gather": lambda comm, x: comm.all_gather(x, timeout=0.3),
    "all_to_all": lambda comm, x: comm.all_to_all(x, timeout=0.3),
    "barrier": lambda comm, x: comm.barrier(timeout=0.3),
    "wait": lambda comm, x: comm.all_reduce(x, timeout=0.3, async_op=True).wait(20),
}
for name, call in CALLS.items():
    with weft.init(transport=sys.argv[1], timeout=30) as comm:
        if comm.rank == 1:  # it is there, and takes no part
            await_event(sys.argv[2], name)
            continue
        with pytest.raises(weft.TimedOut) as caught:
            call(comm, np.ones(10, np.float32))
        assert caught.value.missing == (1,), (name, caught.value)
        tell(sys.argv[2], name)
