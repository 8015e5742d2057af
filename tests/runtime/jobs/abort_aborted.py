"""A rank that aborts cancels what is under way, which cannot end before: rank 2 joins when it has aborted.

Run by tests/runtime/test_abort.py.
"""

import sys
import time
from pathlib import Path

import numpy as np

import weft

aborted = Path(sys.argv[2])
comm = weft.init(transport=sys.argv[1], timeout=60)
R = comm.rank
comm.barrier()
began = time.monotonic()
if R == 0:
    works = [comm.all_reduce(np.ones(300_000), async_op=True) for _ in range(3)]
    works.append(comm.in_turn(comm.barrier, async_op=True))
    time.sleep(0.3)
    assert not any(work.is_completed() for work in works)
    comm.abort()
    aborted.touch()
    for work in works:
        try:
            work.wait(30)
        except weft.RuntimeFailure as error:
            assert "aborted" in str(error), error
        else:
            raise AssertionError
    comm.abort()
    comm.close()
else:
    while R == 2 and not aborted.exists():  # rank 1 is in the operation when it is cancelled
        assert time.monotonic() - began < 30
        time.sleep(0.05)
    try:
        comm.all_reduce(np.ones(300_000))
    except weft.PeerLost as error:
        assert error.rank == 0, error
    else:
        raise AssertionError
assert time.monotonic() - began < 30
try:
    comm.all_reduce(np.ones(3))
except weft.RuntimeFailure as error:
    print(error)
else:
    raise AssertionError
