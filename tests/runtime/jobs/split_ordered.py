"""A key orders the ranks of a part.

Run by tests/runtime/test_split.py.
"""

import numpy as np
from support.engine_rank import begin, say

comm = begin(timeout=20)
part = comm.split(3, -comm.rank)
assert list(part.all_gather(np.array([comm.rank], np.int64))) == [2, 1, 0]
R = comm.rank
say("ordered")
