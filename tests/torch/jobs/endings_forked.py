"""A forked child is refused at once and its parent goes on.

Run by tests/torch/test_endings.py.
"""

import multiprocessing
import os
import signal
import sys
from functools import partial

import torch
import torch.distributed as dist
from support.torch_rank import N, R

import weft


def raises(call):
    try:
        call()
    except weft.RuntimeFailure as error:
        assert "was forked from a rank" in str(error), error
    else:
        raise AssertionError


x, y = torch.ones(1000), torch.ones(1000)


def parts():
    return [torch.ones(1000) for _ in range(N)]


world, P = dist.group.WORLD, 1 - R
CALLS = {
    "all_reduce": lambda **later: dist.all_reduce(x, **later),
    "reduce": lambda **later: dist.reduce(x, 0, **later),
    "broadcast": lambda **later: dist.broadcast(x, 0, **later),
    "all_gather": lambda **later: dist.all_gather(parts(), x, **later),
    "all_gather_into_tensor": lambda **later: dist.all_gather_into_tensor(torch.ones(1000 * N), x, **later),
    "reduce_scatter": lambda **later: dist.reduce_scatter(x, parts(), **later),
    "reduce_scatter_tensor": lambda **later: dist.reduce_scatter_tensor(x, torch.ones(1000 * N), **later),
    "gather": lambda **later: dist.gather(x, parts() if R == 0 else None, 0, **later),
    "scatter": lambda **later: dist.scatter(x, parts() if R == 0 else None, 0, **later),
    "all_to_all": lambda **later: dist.all_to_all(parts(), parts(), **later),
    "all_to_all_single": lambda **later: dist.all_to_all_single(x, y, **later),
    "barrier": dist.barrier,
}


def child(pending, over):
    signal.alarm(30)
    for call in CALLS.values():
        raises(call)
        raises(partial(call, async_op=True))
    for message in (dist.send, dist.isend, dist.recv, dist.irecv):
        raises(partial(message, x, P))
    raises(pending.wait)
    raises(pending.get_future)
    assert over.wait()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    torch.optim.SGD([weight], lr=1.0).step()
    assert weight.tolist() == [0.0, 0.0]
    dist.destroy_process_group()
    dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(weight.data)
    dist.destroy_process_group()


works = [dist.isend(x, P), dist.irecv(y, P)]
for work in works:
    work.wait()
dist.barrier()
over = dist.all_reduce(x, async_op=True)
over.wait()
pending = dist.irecv(y, P, tag=3)
process = multiprocessing.get_context("fork").Process(target=child, args=(pending, over))
process.start()
process.join(60)
assert process.exitcode == 0, process.exitcode
if os.fork() == 0:
    sys.exit(0)  # with all that runs at an exit
os.wait()
dist.send(torch.full((1000,), float(R)), P, tag=3)
pending.wait()
assert (y == P).all()
for call in CALLS.values():
    call()
dist.destroy_process_group()
