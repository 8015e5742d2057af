"""Ranks deal with each other.

Run by tests/runtime/test_split.py.
"""

import numpy as np
from support.engine_rank import begin, say

import weft

comm = begin(timeout=20)
R, N = comm.rank, comm.size
after, before = (R + 1) % N, (R - 1) % N
for n in (0, 1, 7, 4097, 200_000):
    for dtype in ("float32", "int64", "float16"):
        if R == 0:
            for other in range(1, N):
                comm.send(np.full(n, other, dtype), other)
        else:
            room = np.empty(n, dtype)
            assert comm.recv(room, 0) is room and (room == R).all()
        # Everybody to its neighbour: with send and recv one of them would have to begin.
        room = comm.empty(n, dtype)
        comm.send_recv(np.full(n, R, dtype), after, room, before)
        assert (room == before).all()
        comm.send_recv(np.full(2 * n, R, dtype)[::2], R ^ 1, room, R ^ 1)
        assert (room == R ^ 1).all()
        assert (comm.all_reduce(np.full(n, R, dtype)) == sum(range(N))).all()
works = [comm.send(np.full(10, i, np.int32), 1, async_op=True) for i in range(20)] if R == 0 else []
if R == 1:
    for i in range(20):
        assert (comm.recv(np.empty(10, np.int32), 0) == i).all()
for work in works:
    work.wait(10)
assert (comm.last.algorithm == "point to point") == (R in (0, 1))
for call in (lambda: comm.send(np.ones(3), R), lambda: comm.recv(np.ones(3), N)):
    try:
        call()
    except weft.InputError as error:
        assert "has no peer" in str(error)
    else:
        raise AssertionError("a rank has no dealings with itself")
try:
    comm.send_recv(np.ones(3), after, np.ones(3, np.float32), before)
except TypeError as error:
    assert "one type" in str(error)
comm.barrier()
comm.close()
say("dealt")
