"""Errors are those of the native runtime.

Run by tests/runtime/test_engines.py.
"""

import time

import numpy as np
import pytest
from support.engine_rank import FOLDER, begin, say
from support.events import await_event, tell

import weft

comm = begin(timeout=30)
R, N = comm.rank, comm.size
for array in (np.ones(3, np.complex64), np.ones(3, np.uint16), np.array(["a"]), np.ones(3, ">f4")):
    with pytest.raises(TypeError, match="only float16, bfloat16, float32, float64, int32, int64"):
        comm.all_reduce(array)
for op, message in (("xor", "only sum, avg, min, max, prod"), ("bxor", "bits of integers, not on float32")):
    with pytest.raises(TypeError, match=message):
        comm.all_reduce(np.ones(3, np.float32), op)
frozen = np.ones(3, np.float32)
frozen.flags.writeable = False
with pytest.raises(TypeError, match="read-only"):
    comm.all_reduce(frozen)
with pytest.raises(weft.InputError, match=r"root 3 is not a rank 0..2"):
    comm.broadcast(np.ones(3, np.float32), root=3)
with pytest.raises(weft.InputError, match="no multiple of 3 ranks"):
    comm.all_to_all(np.ones(4, np.float32))
with pytest.raises(weft.InputError, match="the topology is for ring:4, 4 ranks; this job has 3"):
    begin(topology="ring:4")
with pytest.raises(weft.InputError, match="transport 'tcp' is for the native engine"):
    begin(transport="tcp")
assert (comm.all_reduce(np.ones(3, np.float32)) == N).all()  # and it still works
comm.close()
with pytest.raises(weft.RuntimeFailure, match="has closed"):
    comm.all_reduce(np.ones(3, np.float32))

array = np.ones(1000, np.float32)
for what in ("size", "dtype", "op", "call"):
    comm = begin(timeout=10)
    comm.all_reduce(array.copy())
    odd = {"size": np.ones(1001, np.float32), "dtype": np.ones(1000)}.get(what, array.copy())
    with pytest.raises(weft.DesyncError) as found:
        if R != 1:
            comm.all_reduce(array.copy())
        elif what == "call":
            comm.all_gather(odd)
        else:
            comm.all_reduce(odd, "max" if what == "op" else "sum")
    assert (found.value.rank == 1) == (R != 1), (what, found.value)
    with pytest.raises(weft.RuntimeFailure, match="of no further use"):
        comm.all_reduce(array.copy())

comm = begin(timeout=30)
began = time.monotonic()
if R == 1:
    for rank in (0, 2):
        await_event(FOLDER, f"given up {rank}")
with pytest.raises((weft.TimedOut, weft.PeerLost)) as found:
    comm.all_reduce(array.copy(), timeout=30 if R == 1 else 0.5)
assert time.monotonic() - began < 25
tell(FOLDER, f"given up {R}")
if R == 1:
    assert found.value.rank in (0, 2), found.value  # those that did not wait for it any longer
elif isinstance(found.value, weft.TimedOut):
    assert found.value.missing == (1,), found.value
    assert "rank 1 did not come within 0.5 s" in str(found.value)
else:
    assert found.value.rank == 1, found.value

comm = begin(timeout=30)
if R == 2:
    comm.close()
else:
    with pytest.raises(weft.PeerLost) as found:
        comm.all_reduce(array.copy())
    assert found.value.rank == 2, found.value
say("told")
