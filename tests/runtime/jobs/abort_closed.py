"""Close waits for the operation of another thread.

Run by tests/runtime/test_abort.py.
"""

import sys
import threading
import time

import numpy as np
from support.events import await_condition, await_event, tell

import weft
from weft.runtime.diagnosis import load_flight

comm = weft.init(transport=sys.argv[1], timeout=60)
comm.barrier()
found: list[np.ndarray] = []


def is_under_way():
    (flight,) = load_flight(comm.flight()).flights
    return flight.operations[-1].collective == "all_reduce"


if comm.rank == 0:
    array = np.ones(300_000, np.float32)
    worker = threading.Thread(target=lambda: found.append(comm.all_reduce(array)))
    worker.start()
    await_condition(is_under_way, "an operation is under way")
    tell(sys.argv[2], "closing")
    comm.close()
    worker.join()
else:
    await_event(sys.argv[2], "closing")
    time.sleep(0.5)  # by now rank 0 waits in close
    found.append(comm.all_reduce(np.ones(300_000, np.float32)))
assert len(found) == 1 and (found[0] == comm.size).all()
