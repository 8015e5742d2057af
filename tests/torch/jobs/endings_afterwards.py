"""A group that was destroyed says so.

Run by tests/torch/test_endings.py.
"""

import gc
import weakref

import torch
import torch.distributed as dist
from support.torch_rank import BACKEND, WORDS, N, R

import weft
import weft.torch


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)


x = torch.ones(10)
group = dist.new_group()
work = dist.all_reduce(x, group=group, async_op=True)
dist.destroy_process_group(group)
assert work.wait()
assert work.is_success()
assert (x == N).all()
assert work.get_future().wait()[0] is x
raises(ValueError, "Invalid process group", lambda: dist.destroy_process_group(group))
group.shutdown()
group.abort()
gone = "has destroyed this process group"
raises(weft.RuntimeFailure, gone, lambda: group.allreduce([x]))
raises(weft.RuntimeFailure, gone, group.barrier)
raises(weft.RuntimeFailure, gone, lambda: group.send([x], 1 - R, 0))
raises(weft.RuntimeFailure, gone, lambda: group.recv([x], 1 - R, 0))
raises(weft.RuntimeFailure, gone, lambda: dist.isend(x, group=group, group_dst=1 - R))

parts = [dist.new_group([rank]) for rank in range(N)]
outside = parts[1 - R]
assert dist.all_reduce(x, group=outside) is None  # torch warns
raises(weft.InputError, "this process is not in the group", lambda: weft.torch.communicator(outside))
dist.destroy_process_group(outside)

# A block that is left by an exception: what was started in it is over, and the group goes on.
group = dist.new_group()


class Oops(Exception):
    pass


def leave():
    with dist._coalescing_manager(group, torch.device("cpu")):
        dist.broadcast(x.fill_(R), 1, group=group)
        raise Oops("by an exception")


raises(Oops, "by an exception", leave)
assert (x == 1).all()
for _ in range(3):
    dist.broadcast(x.fill_(R), 1, group=group)
    assert (x == 1).all()
# The group keeps neither the works of that block nor those of later calls.
work = group.broadcast([x])
work.wait()
kept = weakref.ref(work)
del work
gc.collect()
assert kept() is None
dist.destroy_process_group(group)

# The same store serves a second group of all ranks.
store = dist.FileStore(WORDS[0], N)
for _ in range(2):
    dist.destroy_process_group()
    dist.init_process_group(BACKEND, store=store, rank=R, world_size=N)
    works = [dist.isend(x.fill_(R), 1 - R), dist.irecv(torch.ones(10), 1 - R)]
    for work in works:
        work.wait()
dist.destroy_process_group()
