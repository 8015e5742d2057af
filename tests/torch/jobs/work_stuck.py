"""A group that is destroyed names the operation of a callback that hangs.

A group that is destroyed gives up a callback that does not return, and says whose it is. Rank 1 comes when
rank 0 has its callback: torch calls one at once, in the thread that adds it, where the future is complete
already.

Run by tests/torch/test_work.py.
"""

import threading
import warnings

import torch
import torch.distributed as dist
from support.torch_rank import R
from torch.distributed import distributed_c10d

import weft.runtime.handles

weft.runtime.handles._CALLBACKS_WITHIN_S = 0.5
begun, release = threading.Event(), threading.Event()


def hold(future):
    begun.set()
    return release.wait(60)


group = dist.new_group()
store = distributed_c10d._get_default_store()
if R == 0:
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    held = work.get_future().then(hold)
    store.set("callback added", "")
    assert begun.wait(30)
else:
    store.wait(["callback added"])
    dist.all_reduce(torch.ones(2), group=group)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.destroy_process_group(group)
found = [str(one.message) for one in caught]
assert R or any("callbacks of all_reduce have not returned after 0.5 s" in text for text in found), found
release.set()
assert R or held.wait() is True
dist.destroy_process_group()
