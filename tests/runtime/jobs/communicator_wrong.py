"""Wrong arguments are refused and do no harm.

Run by tests/runtime/test_communicator.py.
"""

import numpy as np
import pytest

import weft

comm = weft.init()
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
with pytest.raises(weft.InputError, match=r"root 2 is not a rank 0..1"):
    comm.broadcast(np.ones(3, np.float32), root=2)
with pytest.raises(weft.InputError, match="no multiple of 2 ranks"):
    comm.all_to_all(np.ones(3, np.float32))
assert (comm.all_reduce(np.ones(3, np.float32)) == 2).all()  # and it still works
comm.close()
with pytest.raises(weft.RuntimeFailure, match="has closed"):
    comm.all_reduce(np.ones(3, np.float32))
