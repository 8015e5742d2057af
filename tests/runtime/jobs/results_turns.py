"""Several operations in one turn.

Run by tests/runtime/test_results.py.
"""

import numpy as np

import weft

comm = weft.init()
N = comm.size


def three():
    return [comm.all_reduce(np.full(3, comm.rank + i))[0] for i in range(3)]


before = comm.all_reduce(np.ones(9), async_op=True)
turn = comm.in_turn(three, async_op=True)
after = comm.all_reduce(np.ones(4), async_op=True)
expected = [sum(range(N)) + N * i for i in range(3)]
assert turn.wait(30) == expected and before.wait(30)[0] == after.wait(30)[0] == N
assert comm.in_turn(three) == expected
