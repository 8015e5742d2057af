"""What several jobs of tests/torch/test_endings.py share.

Each case starts operations and returns their works, the results and what these must be. Ranks come one
after the other, so that the operations of the first are under way when it destroys the group.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R


def part(rank, *shape):
    return torch.full(shape, float(rank + 1))


ALL = range(N)
TOTAL = sum(r + 1.0 for r in ALL)
BIG = 50_000


def all_reduce(group):
    x = part(R, BIG)
    return dist.all_reduce(x, group=group, async_op=True), x, torch.full((BIG,), TOTAL)


def reduce(group):
    x = part(R, BIG)
    work = dist.reduce(x, 1, group=group, async_op=True)
    return work, x, torch.full((BIG,), TOTAL) if R == 1 else part(R, BIG)


def broadcast(group):
    x = part(R, BIG)
    return dist.broadcast(x, 1, group=group, async_op=True), x, part(1, BIG)


def all_gather(group):
    outs = [torch.zeros(BIG) for _ in ALL]
    work = dist.all_gather(outs, part(R, BIG), group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL]


def all_gather_of_unequal_sizes(group):
    outs = [torch.zeros(BIG + r) for r in ALL]
    work = dist.all_gather(outs, part(R, BIG + R), group=group, async_op=True)
    return work, outs, [part(r, BIG + r) for r in ALL]


def all_gather_into_tensor(group):
    out = torch.zeros(N * BIG)
    work = dist.all_gather_into_tensor(out, part(R, BIG), group=group, async_op=True)
    return work, out, torch.cat([part(r, BIG) for r in ALL])


def reduce_scatter(group):
    out = torch.zeros(BIG)
    work = dist.reduce_scatter(out, [part(R, BIG) for _ in ALL], group=group, async_op=True)
    return work, out, torch.full((BIG,), TOTAL)


def reduce_scatter_tensor(group):
    out = torch.zeros(BIG)
    work = dist.reduce_scatter_tensor(out, part(R, N * BIG), group=group, async_op=True)
    return work, out, torch.full((BIG,), TOTAL)


def gather(group):
    outs = [torch.zeros(BIG) for _ in ALL] if R == 1 else []
    work = dist.gather(part(R, BIG), outs or None, 1, group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL] if R == 1 else []


def scatter(group):
    x = torch.zeros(BIG)
    ins = [part(r, BIG) for r in ALL] if R == 1 else None
    return dist.scatter(x, ins, 1, group=group, async_op=True), x, part(R, BIG)


def all_to_all(group):
    outs = [torch.zeros(BIG) for _ in ALL]
    work = dist.all_to_all(outs, [part(R, BIG) for _ in ALL], group=group, async_op=True)
    return work, outs, [part(r, BIG) for r in ALL]


def all_to_all_single(group):
    out = torch.zeros(N * BIG)
    work = dist.all_to_all_single(out, part(R, N * BIG), group=group, async_op=True)
    return work, out, torch.cat([part(r, BIG) for r in ALL])


def barrier(group):
    return dist.barrier(group=group, async_op=True), [], []


def messages(group):
    x = torch.zeros(BIG)
    works = [dist.isend(part(R, BIG), (R + 1) % N, group=group), dist.irecv(x, (R - 1) % N, group=group)]
    return works, x, part((R - 1) % N, BIG)


def coalesced(group):
    xs = [part(R, BIG), part(R, 3)]
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
        for x in xs:
            dist.broadcast(x, 1, group=group, async_op=True)
    return manager.works, xs, [part(1, BIG), part(1, 3)]


def all_reduce_coalesced(group):
    xs = [part(R, BIG), part(R, 3)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x, group=group)
    return manager.works, xs, [torch.full((BIG,), TOTAL), torch.full((3,), TOTAL)]


STARTS = [
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    all_gather_of_unequal_sizes,
    all_gather_into_tensor,
    reduce_scatter,
    reduce_scatter_tensor,
    gather,
    scatter,
    all_to_all,
    all_to_all_single,
    barrier,
    messages,
    coalesced,
    all_reduce_coalesced,
]


def listed(given):
    return given if isinstance(given, list) else [given]
