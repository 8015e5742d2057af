"""The halves make an all-reduce.

Usage: halves_of_all_reduce.py ENGINE FOLDER OPTIONS SECONDS: the options of the communicator in JSON, and how
long its halves are planned, 0 for not at all.

Run by tests/runtime/test_split_all_reduce.py.
"""

import json
from itertools import pairwise

import numpy as np
from support.engine_rank import WORDS, begin, say

import weft

options, plan_s = json.loads(WORDS[0]), float(WORDS[1])
comm = begin(timeout=20, **options)
R, N = comm.rank, comm.size
if plan_s:
    comm.plan_halves(time_limit=plan_s)
for dtype in ("float32", "int64", "float16"):
    for n in (0, 1, N, 4097, 100_000):
        halves = comm.halves(n, dtype)
        spans = sorted(span for span in halves.owned if span[0] < span[1])
        assert not n or (spans[0][0], spans[-1][1]) == (0, n)
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        array = (np.arange(n) % 10 + R).astype(dtype)
        whole = sum((np.arange(n) % 10 + r).astype(dtype) for r in range(N))
        work = halves.reduce(array, async_op=True)
        assert work.wait(20) is array
        assert (array[halves.mine] == whole[halves.mine]).all(), (dtype, n)
        array[halves.mine] *= 2
        halves.gather(array)
        assert (array == 2 * whole).all(), (dtype, n)
        assert N == 1 or "second half" in comm.last.collective
try:
    halves.reduce(np.ones(3, np.float32))
except weft.InputError as error:
    assert "expected 100000 x float16" in str(error)
else:
    raise AssertionError("another size was taken")
say(comm.last.algorithm if N > 1 else "")
