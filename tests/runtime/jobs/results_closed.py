"""A communicator that is closed finishes the turns that were started.

Run by tests/runtime/test_results.py.
"""

import numpy as np

import weft

comm = weft.init()
N = comm.size


def three():
    return [comm.all_reduce(np.full(100_000, comm.rank + i))[0] for i in range(3)]


works = [comm.in_turn(three, async_op=True) for _ in range(5)]
comm.close()
expected = [sum(range(N)) + N * i for i in range(3)]
assert [work.wait(30) for work in works] == [expected] * 5
try:
    comm.in_turn(three)
except weft.RuntimeFailure as error:
    assert "has closed" in str(error)
else:
    raise AssertionError
