"""Sums of all sizes in any order are exact, also while ranks disturb each other.

Small operations begin at a ring's beginning again and again, larger ones go around it, the largest fill it.

Run by tests/runtime/test_communicator.py.
"""

import sys
import time

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=60)
R, N = comm.rank, comm.size
sizes = np.random.default_rng(7)
naps = np.random.default_rng(100 + R)
for number in range(int(sys.argv[2])):
    few = sizes.random() < 0.8
    elements = int(sizes.integers(1, 257)) if few else int(2 ** sizes.uniform(8, 19))
    array = (np.arange(elements) % 13 + number % 5 + R).astype(np.float32)
    expected = N * (np.arange(elements) % 13 + number % 5) + N * (N - 1) // 2
    if naps.random() < 0.02:
        time.sleep(naps.uniform(0, 0.003))
    comm.all_reduce(array)
    assert np.array_equal(array, expected.astype(np.float32)), (R, number, elements)
comm.close()
print("exact")
