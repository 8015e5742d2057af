"""Calls as torch and its users make them.

Run by tests/torch/test_compatibility.py.
"""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from compatibility_check import check, group
from support.torch_rank import N, R

import weft

outputs = [[torch.zeros(2), torch.zeros(3), torch.zeros(0)] for _ in range(N)]
dist.all_gather_coalesced(outputs, [torch.full((2,), 1.0 * R), torch.full((3,), 2.0 * R), torch.zeros(0)])
for rank, (first, second, _) in enumerate(outputs):
    check(first, [rank] * 2)
    check(second, [2 * rank] * 3)
with pytest.raises(weft.InputError, match="2 outputs for 1 inputs"):
    dist.all_gather_coalesced([[torch.zeros(1)] * 2 for _ in range(N)], [torch.zeros(1)])

# The names of torch's own methods.
limit = timedelta(seconds=30)
one = torch.full((2,), float(R))
group.allreduce([one], op=dist.ReduceOp.MAX, timeout=limit).wait()
check(one, [N - 1] * 2)
group.allreduce(tensor=one, op=dist.ReduceOp.SUM).wait()
check(one, [N * (N - 1)] * 2)
one = torch.full((2,), float(R))
group.broadcast(tensor=one, root=N - 1, timeout=limit).wait()
check(one, [N - 1] * 2)
group.reduce(tensor=one, root=0, op=dist.ReduceOp.SUM).wait()
group.reduce(one, 0, dist.ReduceOp.MIN, limit).wait()
outs, mine = [torch.zeros(2) for _ in range(N)], torch.full((2,), float(R))
group.allgather(output_tensors=outs, input_tensor=mine, timeout=limit).wait()
check(torch.stack(outs), [[r, r] for r in range(N)])
group.gather(output_tensors=outs if R == 1 else [], input_tensor=mine + 1, root=1).wait()
check(outs[2], [3.0, 3.0] if R == 1 else [2.0, 2.0])
group.scatter(output_tensor=one, input_tensors=outs if R == 1 else [], root=1).wait()
check(one, [R + 1.0] * 2)
outs = [torch.full((2,), float(r)) for r in range(N)]
group.reduce_scatter(output=one, input=outs, op=dist.ReduceOp.SUM).wait()
check(one, [float(N * R)] * 2)
group.barrier(timeout=limit).wait()
with pytest.raises(weft.InputError, match="0 were given"):
    group.allreduce(op=dist.ReduceOp.SUM)

# Tensors that overlap, at the root.
big = torch.arange(4.0 * N) + 100 * R
source = big[2:6].clone() if R else big[2:6]
dist.gather(source, list(big.view(N, 4).unbind(0)) if R == 0 else None, dst=0)
if R == 0:
    check(big.view(N, 4)[0], [2.0, 3.0, 4.0, 5.0])
    check(big.view(N, 4)[1], [102.0, 103.0, 104.0, 105.0])
big = torch.arange(4.0 * N)
dist.scatter(big[2:6], list(big.view(N, 4).unbind(0)) if R == 0 else None, src=0)
check(big[2:6], [4.0 * R + number for number in range(4)])
for wrong in ("abc", 5):
    with pytest.raises(TypeError, match="expected"):
        group.allreduce(wrong)
for call in (group.set_timeout, lambda time: group.barrier(timeout=time), group.monitored_barrier):
    with pytest.raises(TypeError, match=r"expected a datetime.timedelta"):
        call(5.0)

# What futures complete with.
value = group.allgather([outs], [mine]).get_future().wait()
assert [tensor.data_ptr() for tensor in value] == [tensor.data_ptr() for tensor in outs]

# A limit that is set is what tells of itself, and its end is called what others call it.
assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(minutes=30)
group.set_timeout(timedelta(seconds=2))
assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=2)
group.monitored_barrier(limit)
# A rank that has missed one is told so at its next, and is there again at the one after that.
for number in range(4):
    if number > 0 or R != 2:
        try:
            group.monitored_barrier(timedelta(seconds=3))
        except weft.TimedOut:
            assert number < 2, number
    group.barrier(timeout=limit).wait()
if R == 0:
    with pytest.raises(weft.TimedOut, match="Ranks 1, 2 failed to pass monitoredBarrier in 300 ms") as caught:
        group.monitored_barrier(timedelta(seconds=0.3), wait_all_ranks=True)
    assert caught.value.missing == (1, 2)
    group.get_group_store().set("given up", "")
elif R == 1:
    with pytest.raises(RuntimeError, match="Rank 1 successfully reached monitoredBarrier, but received"):
        group.get_group_store().wait(["given up"])
        group.monitored_barrier(limit)
dist.barrier()  # the group goes on
if R != 1:
    with pytest.raises(RuntimeError, match=" Timed out "):
        group.barrier(timeout=timedelta(seconds=1)).wait()
    group.get_group_store().set(f"ended {R}", "")
else:
    group.get_group_store().wait(["ended 0", "ended 2"])
dist.destroy_process_group()
