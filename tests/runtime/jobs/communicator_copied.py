"""Where no rank may read another data is copied.

Run by tests/runtime/test_communicator.py.
"""

import numpy as np

import weft

comm = weft.init(transport="copy")
R, N = comm.rank, comm.size
for elements in (20_000, 16_384 * N, 131_072 * N, 700_001):  # whole pieces of the ring, and others
    for _ in range(3):
        private = np.full(elements, R, np.float32)
        assert (comm.all_reduce(private) == sum(range(N))).all()
        shared = comm.empty(elements)
        shared[:] = R
        assert (comm.all_reduce(shared) == sum(range(N))).all()
