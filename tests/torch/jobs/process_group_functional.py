"""Functional collectives, also compiled by the compiler that is named.

Run by tests/torch/test_process_group.py.
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from support.torch_rank import WORDS, N, R

world = dist.group.WORLD
x = torch.arange(4.0) + R
everything = [torch.arange(4.0) + r for r in range(N)]


# The names of torch 2.13, and those of 2.12.
gather = getattr(fc, "all_gather_single", None) or fc.all_gather_tensor
reduce_scatter = getattr(fc, "reduce_scatter_single", None) or fc.reduce_scatter_tensor


def compute(x):
    total = fc.all_reduce(x, "sum", world)
    joined = gather(x, 0, world)
    share = reduce_scatter(joined, "avg", 0, world)
    first = fc.broadcast(x, 0, world)
    turned = fc.all_to_all_single(joined, None, None, world)
    return total * 2, joined + 1, share, first, turned


total, joined = sum(everything), torch.cat(everything)
expected = total * 2, joined + 1, everything[R], everything[0], everything[R].repeat(N)
for call in (compute, torch.compile(compute, fullgraph=True, backend=WORDS[0])):
    for found, wanted in zip(call(x), expected, strict=True):
        assert torch.equal(found, wanted), (found, wanted)
dist.destroy_process_group()
