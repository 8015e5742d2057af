"""Shared private strided and asynchronous.

Run by tests/runtime/test_communicator.py.
"""

import numpy as np

import weft

comm = weft.init()
R, N = comm.rank, comm.size
for elements in (0, 1, 100_000, 1_000_003):
    array = comm.empty(elements)
    array[:] = np.arange(elements) % 7 + R
    comm.all_reduce(array)
    assert np.array_equal(array, N * (np.arange(elements) % 7) + sum(range(N))), elements
    private = np.full(elements, R, np.float32)  # in the same job some ranks share and some do not
    mixed = comm.empty(elements) if R % 2 else private
    mixed[:] = R
    comm.all_reduce(mixed)
    assert (mixed == sum(range(N))).all()
works = [comm.all_reduce(np.full(1000, R + i, np.float64), async_op=True) for i in range(50)]
blocking = comm.all_reduce(np.full(10, R, np.int32))
assert (blocking == sum(range(N))).all()
for i, work in enumerate(works):
    assert work.is_completed() and (work.wait(10) == sum(range(N)) + N * i).all()
strided = np.full((100, 6), R, np.float32)[:, ::3]
comm.all_reduce(strided)
assert (strided == sum(range(N))).all()
average = comm.all_reduce(np.full(5, R, np.float32), "avg")
assert (average == np.float32(sum(range(N))) / N).all()
for sign in (1, -1):  # of integers it is rounded towards zero
    average = comm.all_reduce(np.full(5, sign * (R + 1), np.int16), "avg")
    assert (average == sign * (N * (N + 1) // 2 // N)).all(), average
comm.barrier()
if N > 1:
    assert comm.last.algorithm == "recursive_doubling" and len(comm.last.digest) == 64
    comm.all_reduce(np.ones(100_000))
    assert comm.last.algorithm == "direct"
