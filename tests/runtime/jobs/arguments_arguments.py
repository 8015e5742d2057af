"""Wrong arguments of calls are refused and the communicator lives on.

Run by tests/runtime/test_arguments.py.
"""

import time
from functools import partial

import numpy as np
import pytest

import weft

comm = weft.init(timeout=20)


def refused(call, message):
    with pytest.raises(weft.InputError, match=message):
        call()


assert comm.empty(np.int64(5)).shape == (5,)
assert comm.empty((np.int32(2), 3)).shape == (2, 3)
assert comm.empty([2, 0]).shape == (2, 0)
for shape in (-1, (-1, -1), (2**32, 2**32), (0, 2**40, 2**40), 2**70, 2.5, (2.5,), "5", None):
    refused(partial(comm.empty, shape), "empty: shape")
for dtype in ("nonsense", object, "V0", ("f4", (3,))):
    refused(partial(comm.empty, 5, dtype), "empty: dtype")
for timeout in (np.int64(20), np.float32(20)):
    assert (comm.all_reduce(np.ones(4), timeout=timeout) == comm.size).all()
with pytest.raises(TypeError, match="is not supported, only sum"):
    comm.all_reduce(np.ones(4), [])
with pytest.raises(TypeError, match="is not supported, only sum"):
    comm.all_reduce(np.ones(4), np.ones(4))  # the second place is the op, not the array for the result
for kind in ([], None, 5):
    refused(partial(comm.all_reduce, np.ones(4), kind=kind), "kind .*expected a text")
    refused(partial(comm.broadcast, np.ones(4), kind=kind, async_op=True), "kind .*expected a text")
refused(lambda: comm.use_plan(None), "expected a plan")
refused(lambda: comm.split(0, plan="plan.weft"), "plan.weft")
refused(lambda: comm.split(0, plan=5), "expected a plan")
refused(lambda: comm.shrink(minimum="a"), "minimum 'a'")
began = time.monotonic()
with pytest.raises(weft.RuntimeFailure, match="the topology is for ring:5, 5 ranks; this job has 2"):
    comm.replan("ring:5", time_limit=60)
assert time.monotonic() - began < 40  # planning would take 60
assert comm.failure is None
assert (comm.all_reduce(np.ones(4)) == comm.size).all()
