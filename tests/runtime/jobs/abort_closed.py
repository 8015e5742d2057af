"""Close waits for the operation of another thread.

Run by tests/runtime/test_abort.py.
"""

import sys
import threading
import time

import numpy as np

import weft

comm = weft.init(transport=sys.argv[1], timeout=60)
comm.barrier()
found: list[np.ndarray] = []
if comm.rank == 0:
    array = np.ones(300_000, np.float32)
    worker = threading.Thread(target=lambda: found.append(comm.all_reduce(array)))
    worker.start()
    time.sleep(0.5)
    comm.close()
    worker.join()
else:
    time.sleep(1.5)
    found.append(comm.all_reduce(np.ones(300_000, np.float32)))
assert len(found) == 1 and (found[0] == comm.size).all()
