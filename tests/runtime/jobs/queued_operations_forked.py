"""A future is not waited for in a forked child.

Run by tests/runtime/test_queued_operations.py.
"""

import os

import numpy as np
from queued_operations_prelude import R, comm
from support.events import await_event, tell

import weft

if R == 0:
    future = comm.all_reduce(np.ones(3), async_op=True).future
    child = os.fork()
    if child == 0:
        refused = 0
        for ask in (future.result, future.exception):
            try:
                ask(20)
            except weft.RuntimeFailure as failure:
                refused += "forked" in str(failure)
        os._exit(0 if refused == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    tell(os.environ["EVENTS"], "asked")
    comm.barrier()
else:
    await_event(os.environ["EVENTS"], "asked")
    comm.all_reduce(np.ones(3))
    comm.barrier()
comm.close()
