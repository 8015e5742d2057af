"""Callbacks may wait for collectives and messages.

A callback waits for a collective, whose future is completed by a callback that waits for a third.

Run by tests/torch/test_work.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R


def reduced(value, then=lambda _: None):
    work = dist.all_reduce(torch.full((3,), value), async_op=True)
    return work.get_future().then(lambda future: (future.value()[0].clone(), then(future)))


def inner(_):
    return reduced(2.0, lambda _: reduced(3.0).wait()).wait()


first, second = reduced(1.0, inner).wait()
assert first.tolist() == [N] * 3, first
assert second[0].tolist() == [2.0 * N] * 3 and second[1][0].tolist() == [3.0 * N] * 3, second

# The same for messages, whose futures are completed by the threads of their connections.
other = 1 - R
box = torch.zeros(1)
got = dist.irecv(box, other).get_future()
more = torch.zeros(1)
after = got.then(lambda _: (dist.irecv(more, other).wait(), more.clone()))
dist.send(torch.ones(1) * R, other)
dist.send(torch.ones(1) * (R + 10), other)
assert after.wait()[1].item() == other + 10
assert box.item() == other

# A future is complete when a wait for the work has returned.
for _ in range(200):
    work = dist.all_reduce(torch.ones(2), async_op=True)
    future = work.get_future()
    work.wait()
    assert future.done()
    assert future.value()[0].tolist() == [N] * 2
dist.destroy_process_group()
