"""Threads that call one communicator at the same time wait for each other; nobody is refused.

Run by tests/runtime/test_misuse.py.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=30)


def reduce(elements):
    return (comm.all_reduce(np.ones(elements)) == comm.size).all()


assert reduce(4)
if comm.rank == 1:
    time.sleep(0.5)  # so that the threads of rank 0 meet in the first operation, which was made before
with ThreadPoolExecutor(3) as threads:
    assert all(threads.map(reduce, [4] * 30))
comm.close()
print("done")
