"""Every collective type and op is exact.

Run by tests/runtime/test_engines.py.
"""

import numpy as np
from support.engine_rank import ENGINE, begin, say

FOLD = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
comm = begin()
R, N = comm.rank, comm.size


def part(rank, n, dtype):
    return ((np.arange(n) * 7 + 3 * rank) % 5 - 1).astype(dtype)


def check(found, expected, *what):
    same = type(found) is np.ndarray and found.dtype == expected.dtype and np.array_equal(found, expected)
    assert same, (R, *what, found[:8], expected[:8])


for n in (0, 1, 7, 4097):
    for dtype in ("float16", "float32", "float64", "int32", "int64"):
        parts = [part(r, n, dtype) for r in range(N)]
        for op in FOLD if n > 1 else ["sum"]:
            what = (n, dtype, op)
            total = parts[0].copy()
            for other in parts[1:]:
                total = FOLD[op](total, other)
            check(comm.all_reduce(parts[R].copy(), op), total, "all_reduce", *what)
        size, more = divmod(n, N)
        first = R * size + min(R, more)
        check(comm.reduce_scatter(parts[R], op), total[first : first + size + (more > R)], "scatter", *what)
        check(comm.reduce(parts[R].copy(), 1, op), total if R == 1 else parts[R], "reduce", *what)
        check(comm.all_gather(parts[R]), np.concatenate(parts), "all_gather", *what)
        check(comm.broadcast(parts[R].copy(), root=N - 1), parts[N - 1], "broadcast", *what)
        sent = [part(r, n * N, dtype) for r in range(N)]
        expected = np.concatenate([sent[r][R * n : (R + 1) * n] for r in range(N)])
        check(comm.all_to_all(sent[R]), expected, "all_to_all", *what)
        if dtype.startswith("float"):
            total = comm.all_reduce(parts[R].copy())
            check(comm.all_reduce(parts[R].copy(), "avg"), total / np.dtype(dtype).type(N), "avg", *what)
if ENGINE == "mpi":
    from weft.runtime.engines import mpi_engine

    mpi_engine.LARGEST = 1000  # bytes, so that messages are several
    assert (comm.all_reduce(np.full(4097, R, np.float64)) == sum(range(N))).all()
works = [comm.all_reduce(np.full(1000, R + i, np.float64), async_op=True) for i in range(20)]
assert (comm.all_reduce(np.full(10, R, np.int32)) == sum(range(N))).all()
for i, work in enumerate(works):
    assert work.is_completed() and (work.wait(10) == sum(range(N)) + N * i).all()
strided = np.full((100, 6), R, np.float32)[:, ::3]
comm.all_reduce(strided)
assert (strided == sum(range(N))).all()
frozen = np.ones(9, np.float32)
frozen.flags.writeable = False
assert (comm.reduce_scatter(frozen) == N).all()
room = comm.empty((3, 2))
room[:] = 1
assert comm.all_reduce(room) is room and (room == N).all()
comm.barrier()
assert comm.last.algorithm == "recursive_doubling" and len(comm.last.digest) == 64
comm.close()
comm.close()
say("exact")
