"""Some of the ranks make a communicator, and a key orders them.

Run by tests/runtime/test_split.py.
"""

import numpy as np
from support.engine_rank import begin, say

import weft

comm = begin(timeout=20)
R, N = comm.rank, comm.size
mine = [rank for rank in range(N) if rank % 2 == R % 2]
part = comm.split(R % 2)
assert (part.rank, part.size) == (mine.index(R), len(mine))
assert (part.all_reduce(np.full(100_000, R, np.float32)) == sum(mine)).all()
assert list(part.all_gather(np.array([R], np.int32))) == mine
shared = comm.empty(70_000)  # the parts know the memory of the whole
shared[:] = R
assert (part.all_reduce(shared) == sum(mine)).all()
inner = part.split(0 if part.rank else None)
assert (inner is None) == (part.rank == 0)
if inner is not None:
    assert (inner.all_reduce(np.ones(9)) == len(mine) - 1).all()
outer = comm.split(None if R == 0 else 7)
if R:
    work = outer.all_reduce(np.ones(50_000), async_op=True)
    assert (outer.size, outer.rank) == (N - 1, R - 1)
    assert (work.wait(10) == N - 1).all()
turned = comm.split(3, -R)
assert list(turned.all_gather(np.array([R], np.int64))) == list(range(N))[::-1]
for _ in range(20):  # more than there is room for at a time
    with comm.split(0, algorithm="ring") as again:
        assert (again.all_reduce(np.ones(3)) == N).all() and again.last.algorithm == "ring"
assert (comm.all_reduce(np.ones(5)) == N).all()
comm.close()
try:
    part.barrier()
except weft.RuntimeFailure as error:
    assert "has closed" in str(error)
say("parted")
