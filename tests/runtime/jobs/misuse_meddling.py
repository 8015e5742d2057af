"""A user who meddles with futures harms nothing.

What a user does to the future of an operation, or in its thread, neither hangs nor spoils what follows.

Run by tests/runtime/test_misuse.py.
"""

import numpy as np

import weft

comm = weft.init(timeout=20)
work = comm.all_reduce(np.ones(1_000_000), async_op=True)
assert not work.future.cancel()
assert (work.wait(20) == comm.size).all()
work = comm.all_reduce(np.ones(1_000_000), async_op=True)
work.future.set_result("mine")
assert work.wait(20) == "mine"
assert (comm.all_reduce(np.ones(3), async_op=True).wait(20) == comm.size).all()
assert (comm.all_reduce(np.ones(3)) == comm.size).all()

inner = comm.in_turn(lambda: comm.all_reduce(np.ones(3), async_op=True).wait(), async_op=True)
assert (inner.wait(20) == comm.size).all()
try:
    comm.in_turn(comm.close, async_op=True).wait(20)
except weft.RuntimeFailure as error:
    assert "close was called within an operation" in str(error), error
else:
    raise AssertionError("closed by its own operation")
assert (comm.all_reduce(np.ones(3)) == comm.size).all()
comm.close()
