"""Profilers and dispatch modes see collectives.

Run by tests/torch/test_compatibility.py.
"""

import time

import pytest
import torch
import torch.distributed as dist
from compatibility_check import check
from support.torch_rank import N, R
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from weft.torch.internals import all_gather_single, reduce_scatter_single


def everything():
    a, b = torch.ones(4), torch.zeros(4 * N)
    parts = [torch.zeros(4) for _ in range(N)]
    dist.all_reduce(a)
    dist.all_reduce(a, async_op=True).wait()
    dist.broadcast(a, 0)
    dist.reduce(a, 0)
    dist.all_gather(parts, a)
    all_gather_single(b, a)
    dist.reduce_scatter(a, parts)
    reduce_scatter_single(a, b)
    dist.gather(a, parts if R == 0 else None, dst=0)
    dist.scatter(a, parts if R == 0 else None, src=0)
    dist.all_to_all(parts, [part.clone() for part in parts])
    dist.all_to_all_single(torch.zeros(4 * N), b)


def count(mode):
    return {str(op): times for op, times in mode.get_comm_counts().items()}


with CommDebugMode() as mode:
    everything()
counts = count(mode)
assert counts.pop("c10d.allreduce_") == 2, counts
others = "broadcast_ reduce_ allgather_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ "
others += "gather_ scatter_ alltoall_ alltoall_base_"
assert counts == {f"c10d.{name}": 1 for name in others.split()}, counts


# Modes nest, each sees it once; a model in DDP is counted as on gloo.
class Names(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        names.append(str(func))
        return func(*args, **(kwargs or {}))


names = []
with CommDebugMode() as mode, Names():
    dist.all_reduce(torch.ones(2))
assert count(mode) == {"c10d.allreduce_": 1} and names.count("c10d.allreduce_.default") == 1, names


# A tensor that wraps another gives that one.
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from torch.utils._pytree import tree_map_only

        return func(*tree_map_only(Wrapper, lambda one: one.inner, args), **(kwargs or {}))


wrapped = Wrapper(torch.ones(3) * (R + 1))
dist.all_reduce(wrapped)
check(wrapped.inner, [N * (N + 1) / 2] * 3)
outs = [Wrapper(torch.zeros(3)) for _ in range(N)]
dist.all_gather(outs, wrapped)
check(outs[N - 1].inner, [N * (N + 1) / 2] * 3)

# What has no memory is not reduced; what a subclass does not know is refused, as on gloo.
with FakeTensorMode():
    dist.all_reduce(torch.ones(3))
mesh = init_device_mesh("cpu", (N,))
with pytest.raises(NotImplementedError):
    dist.all_reduce(DTensor.from_local(torch.ones(2), mesh, [Replicate()]))

with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    everything()
    time.sleep(2.0)  # what is over does not last until the profiler stops
    box = torch.zeros(5)
    work = dist.irecv(box) if R == 0 else dist.isend(torch.ones(5), 0)
    work.wait()
    if R == 0:
        for _ in range(N - 2):
            dist.recv(box)
dist.barrier()
events = {}
for event in profiler.events():
    if event.name.startswith("weft:"):
        events.setdefault(event.name.removeprefix("weft:"), []).append(event)
expected = "all_reduce broadcast reduce all_gather _all_gather_base reduce_scatter _reduce_scatter_base "
expected += "gather scatter all_to_all"
expected = {*expected.split(), "recvAnySource" if R == 0 else "send"}
assert set(events) == expected, set(events) ^ expected
assert len(events["all_reduce"]) == 2
assert sum(event.is_async for event in events["all_reduce"]) == 1
assert all(event.input_shapes == [[4]] for event in events["all_reduce"]), events["all_reduce"]
# An operation that outlives the profiler does no harm.
for _ in range(20):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True):
        late = [dist.all_reduce(torch.ones(50_000), async_op=True) for _ in range(5)]
    for work in late:
        work.wait()
last = max(event.time_range.end for event in events["recvAnySource" if R == 0 else "send"])
assert all(event.time_range.end < last - 1_000_000 for event in events["all_reduce"]), events["all_reduce"]
dist.destroy_process_group()
