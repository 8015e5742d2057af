"""What is not supported is refused and harms nothing.

Run by tests/torch/test_process_group.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R

import weft
import weft.torch


def refused(kind, text, call, *words, **options):
    try:
        call(*words, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)


x = torch.ones(4)
refused(TypeError, "uint16 can be moved but not added", dist.all_reduce, x.to(torch.uint16))
refused(TypeError, "only BAND, BOR, BXOR, MAX, MIN", dist.all_reduce, x.to(torch.bool), dist.ReduceOp.AVG)
refused(TypeError, "non-integral dtype", dist.all_reduce, x, dist.ReduceOp.BAND)
refused(TypeError, "not supported", dist.all_reduce, x, dist._make_nccl_premul_sum(2.0))
refused(TypeError, "share memory", dist.all_reduce, torch.ones(1).expand(4))
refused(TypeError, "to_dense", dist.broadcast, torch.eye(3).to_sparse(), 0)
refused(TypeError, "CPUs, not on meta", dist.all_reduce, torch.ones(3, device="meta"))
refused(weft.InputError, "do not fit", dist.all_gather_into_tensor, torch.ones(7), x)
refused(weft.InputError, "has no peer", dist.group.WORLD.send, [x], R)
refused(weft.InputError, "are not the 4", dist.all_to_all_single, x, x, [1] * N, [1] * N) if N != 4 else None
other = dist.new_group(backend="gloo")
refused(weft.InputError, "weft.torch.connect takes any", weft.torch.communicator, other)
assert weft.torch.communicator().size == N
assert weft.torch.communicator(dist.group.WORLD).last is None
dist.all_reduce(x)
assert x[0] == N
assert weft.torch.communicator().last.collective == "all_reduce"
dist.destroy_process_group()
