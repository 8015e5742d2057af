"""A callback that takes long holds up nothing else.

A callback that waits for what the main thread does next holds up nothing but itself.

Run by tests/torch/test_work.py.
"""

import threading

import torch
import torch.distributed as dist
from support.torch_rank import R
from torch.distributed import distributed_c10d

begun, go = threading.Event(), threading.Event()


def hold(future):
    begun.set()
    return go.wait(30)


store = distributed_c10d._get_default_store()
if R == 0:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    held = work.get_future().then(hold)
    store.set("callback added", "")
    assert begun.wait(30)
    assert work.get_future().done()
    assert work.wait()
else:
    store.wait(["callback added"])
    dist.all_reduce(torch.ones(2))
dist.all_reduce(torch.ones(2))
go.set()
assert R or held.wait() is True
dist.destroy_process_group()
