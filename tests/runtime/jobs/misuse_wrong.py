"""Wrong calls are refused and do no harm.

Run by tests/runtime/test_misuse.py.
"""

import numpy as np
import pytest
import torch

import weft

comm = weft.init(timeout=20)
R = comm.rank
one = np.ones(10)
for timeout in (-1, 0, float("nan"), float("inf"), 1e10, "5"):
    with pytest.raises(weft.InputError, match="timeout"):
        comm.all_reduce(one, timeout=timeout)
with pytest.raises(weft.InputError, match="overlap"):
    comm.send_recv(one[:8], 1 - R, one[4:], 1 - R)
with pytest.raises(TypeError, match="negative bit"):
    comm.all_reduce(torch.tensor([1 + 2j]).conj().imag)
with pytest.raises(TypeError, match="cannot be taken as an array"):
    comm.all_reduce([1.0, 2.0])
with pytest.raises(TypeError, match="cannot be taken as an array"):
    comm.all_reduce(torch.ones(3, requires_grad=True))
with pytest.raises(TypeError, match="cannot be taken as an array"):
    comm.all_reduce(torch.ones(3, dtype=torch.bfloat16, requires_grad=True))
with pytest.raises(TypeError):
    comm.split(0.5)
for color, key in ((2**70, 0), (0, -(2**70))):
    with pytest.raises(weft.InputError, match="64 bits"):
        comm.split(color, key)
for root in (1.5, "0", None, 2, -1):
    with pytest.raises(weft.InputError, match="is not a rank"):
        comm.broadcast(one, root)
    with pytest.raises(weft.InputError, match="has no peer"):
        comm.send(one, root)
for place in (-3, 1, 5, 10**9, 0.0, "0", None):
    with pytest.raises(weft.InputError, match=r"recv_parts: place .* is none of 0..0"):
        comm.recv_parts([1 - R], one, place=place)
with pytest.raises(weft.InputError, match="timeout nan"):
    comm.all_reduce(one, async_op=True).wait(float("nan"))
with pytest.raises(weft.InputError, match="that is this rank itself"):
    comm.send(one, R)
with pytest.raises(TypeError, match="not supported"):
    comm.all_reduce(one, "x" * 100_000)
weft.limits.MAX_SEGMENTS, most = 1, weft.limits.MAX_SEGMENTS
with pytest.raises(weft.errors.LimitError, match=r"all_reduce .*: more than 1 .*larger segments"):
    comm.all_reduce(np.ones(5_000_000))
weft.limits.MAX_SEGMENTS = most
last = comm.all_reduce(np.ones(3), async_op=True)
last.wait(20)
comm.close()
