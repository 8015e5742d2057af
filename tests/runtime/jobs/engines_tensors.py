"""Tensors are combined where they are beside the users group.

Run by tests/runtime/test_engines.py.
"""

import time
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.engine_rank import begin, say

import weft
from weft.runtime.engines.interpreter import Move
from weft.runtime.engines.messaging import OperationFailure
from weft.runtime.engines.torch_engine import GroupedChannel

with pytest.raises(weft.InputError, match="init_process_group"):
    weft.init(engine="torch")
with pytest.raises(weft.InputError, match="engine 'ucx' is unknown, expected native, mpi, torch"):
    weft.init(engine="ucx")
with pytest.raises(weft.InputError, match="a process group is for engine 'torch', not 'native'"):
    weft.init(group=3)
comm = begin()
R, N = comm.rank, comm.size
total = sum(range(N))
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64):
    tensor = torch.full((300, 101), R, dtype=dtype)
    assert comm.all_reduce(tensor) is tensor
    assert tensor.dtype == dtype and (tensor == total).all(), dtype
    joined = comm.all_gather(torch.full((5,), R, dtype=dtype))
    assert joined.dtype == dtype and joined.tolist() == [r for r in range(N) for _ in range(5)]
    for op, expected in (("min", 0), ("max", N - 1), ("prod", 0)):
        assert (comm.all_reduce(torch.full((5,), R, dtype=dtype), op) == expected).all()
halves = torch.full((7,), R + 1, dtype=torch.bfloat16)
comm.all_reduce(halves, "avg")
assert (halves == torch.tensor((total + N) / N, dtype=torch.bfloat16)).all()
columns = torch.full((100, 6), R, dtype=torch.float32)[:, ::3]
comm.all_reduce(columns)
assert (columns == total).all()
weight = torch.full((4,), float(R), requires_grad=True)
comm.broadcast(weight, 1)
assert weight.requires_grad and (weight == 1).all()
with pytest.raises(TypeError, match="negative bit"):
    comm.all_reduce(torch._neg_view(torch.ones(3)))
# What is only read is taken as it is when its turn comes.
ones, later = np.ones(4, np.float32), np.zeros(4, np.float32)
view = ones.view()
view.flags.writeable = False
comm.in_turn(lambda: time.sleep(0.2), async_op=True)
comm.all_reduce(ones, async_op=True)
comm.all_reduce(view, out=later, async_op=True).wait()
assert (later == N * N).all()
whole = torch.arange(5 * N, dtype=torch.float32)
comm.all_gather(whole[3:8], out=whole)  # the input overlaps the place that it goes to
assert whole.tolist() == [float(value) for _ in range(N) for value in range(3, 8)]
with pytest.raises(TypeError, match=r"arrays of torch.uint16 are not supported, only float16"):
    comm.all_reduce(torch.ones(3, dtype=torch.uint16))
with pytest.raises(TypeError, match="does not move tensors on meta, only on cpu with gloo"):
    comm.all_reduce(torch.ones(3, device="meta"))

pair = dist.new_group([0, 2])
if R == 1:
    with pytest.raises(weft.InputError, match="this process is not in the group"):
        weft.init(engine="torch", group=pair)
else:
    two = weft.init(engine="torch", group=pair, timeout=20)
    assert (two.size, two.rank) == (2, R // 2)
    assert (two.all_reduce(torch.ones(3)) == 2).all()
    with pytest.raises(weft.DesyncError):
        two.all_reduce(torch.ones(3 + R))
    # What carries tensors on GPUs, as far as gloo can show it: ranks are those of the group, waits end.
    engine: Any = two._engine
    grouped, peer, room = GroupedChannel(pair, engine._watch), 1 - two.rank, torch.zeros(3)
    sent = torch.full((3,), float(R))
    _, (_, works) = grouped.start([Move(peer, sent, sends=True), Move(peer, room, sends=False)])
    for work in works:
        work.wait()
    assert (room == 2 - R).all()
    (late,) = grouped.start([Move(peer, room, sends=False)])
    with pytest.raises(OperationFailure, match=f"late: rank {peer}"):
        grouped.wait(late, time.monotonic() + 0.01)
mine = torch.full((3,), float(R))
dist.all_reduce(mine)  # the user's own group is as it was
assert (mine == total).all()
comm.barrier()
dist.destroy_process_group()
comm.close()
say("in place")
