"""Calls that are repeated without Python do what they did the first time, in the order of their starts.

Run by tests/runtime/test_repeated_calls.py.
"""

import functools
import gc
import os
import weakref

import numpy as np
from queued_operations_prelude import N, R, comm

import weft

ELEMENTS = 1000
halves = comm.halves(ELEMENTS)
array = np.zeros(ELEMENTS, np.float32)
first, second = halves.reduction(array, "avg"), halves.gathering(array)


def prepare():
    first()
    reduce = comm.repeat(first, array, "sum", halves.mine)
    second()
    return reduce, comm.repeat(second, array, "sum")


def repeat_sum(array):
    comm.all_reduce(array)
    return comm.repeat(functools.partial(comm.all_reduce, array), array, "sum")


reduce, gather = comm.in_turn(prepare, async_op=True).wait()
assert reduce.is_done()
for step in range(50):
    mine = np.random.default_rng((step, R)).random(ELEMENTS, np.float32)
    expected = mine.copy()
    comm.all_reduce(expected)  # with other operations in between, and sums in another order
    array[:] = mine
    with comm.together():
        assert reduce.start(20.0)
        own = comm.in_turn(array[halves.mine].copy, async_op=True)
        assert gather.start(20.0)
    assert gather.wait() is None
    assert gather.is_done()
    assert reduce.error is None
    np.testing.assert_allclose(array, expected / N, rtol=1e-6)
    assert (own.wait() == array[halves.mine]).all()
    repeated = array.copy()
    array[:] = mine
    comm.in_turn(lambda: (first(), second()))
    assert (repeated == array).all(), "other bits than on the long way"
    assert comm._worker.idle()

assert "second half" in comm.last.collective if N > 1 else comm.last is None
twice = comm.in_turn(lambda: [gather.start(20.0), gather.start(20.0)], async_op=True)
try:
    twice.wait()
except RuntimeError as error:
    assert "started again while it is under way" in str(error)
else:
    raise AssertionError("a call was started twice")
gather.wait()

passing = np.ones(4, np.float32)
watched = weakref.ref(passing)
call = comm.in_turn(functools.partial(repeat_sum, passing), async_op=True).wait()
assert call.start(20.0)
call.wait()
assert (passing == N * N).all()
del call, passing
comm.in_turn(lambda: None, async_op=True).wait()  # the thread keeps the function of its latest task
gc.collect()
assert watched() is None, "a call is never collected"
assert comm.repeat(first, np.ones((4, 4), np.float32)[:, 1], "sum") is None, "not in one piece"

blocked = comm.in_turn(lambda: os.read(pipe[0], 1), async_op=True) if (pipe := os.pipe()) else None
assert reduce.start(20.0)
if (child := os.fork()) == 0:
    try:
        reduce.wait()
    except weft.RuntimeFailure as failure:
        os._exit(0 if "forked" in str(failure) and not reduce.start(20.0) else 1)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert not reduce.is_done()
os.write(pipe[1], b"1")
reduce.wait()

assert not reduce.start(0.0)
comm.use(comm._chooser)
assert not gather.usable
assert not gather.start(20.0), "prepared for schedules that are no longer used"
comm.barrier()
comm.close()
assert not reduce.start(20.0)
print("repeated")
