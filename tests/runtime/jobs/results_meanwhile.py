"""The input of a reduce scatter may be read meanwhile.

Run by tests/runtime/test_results.py.
"""

import time

import numpy as np
from support.engine_rank import WORDS, begin

comm = begin(**({"algorithm": WORDS[0]} if WORDS else {}))
R, N = comm.rank, comm.size

array = np.full(3 * N, R + 1.0)
if R == 2:
    time.sleep(0.5)
work = comm.reduce_scatter(array, async_op=True)
end = time.monotonic() + 60
while not work.is_completed():
    assert (array == R + 1).all(), array  # the last rank comes late: the shares of the others are in by then
    assert time.monotonic() < end
assert (work.wait() == 6).all()
