"""A queued operation takes arrays as they are when its turn comes.

Run by tests/runtime/test_queued_operations.py.
"""

import numpy as np
from queued_operations_prelude import N, R, comm


def strided():
    return np.ones(400_006, np.float32)[::2]


def plain():
    return np.ones(200_003, np.float32)


for make in (plain, strided):
    x = make()
    for handle in [comm.all_reduce(x, async_op=True) for _ in range(3)]:
        handle.wait()
    assert (x == N**3).all(), ("all_reduce", make.__name__, x[:2])

    x = make()
    handle = comm.all_reduce(x, async_op=True)
    comm.all_reduce(x)
    assert (x == N**2).all(), ("blocking all_reduce", make.__name__, x[:2])

    for name in ("reduce", "reduce_scatter", "all_gather", "gather", "broadcast"):
        x = make()
        handle = comm.all_reduce(x, async_op=True)
        got = getattr(comm, name)(x, async_op=True).wait()
        want = N**2 if "reduce" in name else N
        if got is not None and (R == 0 or name != "reduce"):
            assert (np.asarray(got) == want).all(), (name, make.__name__, np.unique(got))

    x, y = make(), np.zeros(200_003, np.float32)
    comm.all_reduce(x, async_op=True)
    comm.send_recv(x, (R + 1) % N, y, (R - 1) % N)
    assert (y == N).all(), ("send_recv", make.__name__, y[:2])

    x = make()
    halves = comm.halves(200_003)
    first, second = halves.reduce(x, async_op=True), halves.gather(x, async_op=True)
    first.wait(), second.wait()
    assert (x == N).all(), ("halves", make.__name__, np.unique(x))
comm.close()
