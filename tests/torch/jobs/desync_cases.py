"""What several jobs of tests/torch/test_desync.py share.

What the two ranks call, one each: of torch's names, types or reductions that the runtime has none for.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R

SUM, MAX, BOR = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BOR
INT16, UINT16, FLOAT8 = torch.int16, torch.uint16, torch.float8_e4m3fn


def of(count, dtype):
    return torch.ones(count).to(dtype)


def reduced(name, *pair):
    dtype, count, op = pair
    return lambda group: getattr(dist, name)(of(count, dtype), op=op, group=group)


def moved(name, dtype, count):
    def call(group):
        one, all_ = of(count, dtype), [of(count, dtype) for _ in range(N)]
        if name == "all_reduce":
            dist.all_reduce(one, group=group)
        elif name == "broadcast":
            dist.broadcast(one, 0, group=group)
        elif name == "reduce":
            dist.reduce(one, 0, group=group)
        elif name == "all_gather":
            dist.all_gather(all_, one, group=group)
        elif name == "all_gather_into_tensor":
            dist.all_gather_into_tensor(of(N * count, dtype), one, group=group)
        elif name == "gather":
            dist.gather(one, all_ if R == 0 else None, 0, group=group)
        elif name == "scatter":
            dist.scatter(one, all_ if R == 0 else None, 0, group=group)
        elif name == "all_to_all":
            dist.all_to_all(all_, [of(count, dtype) for _ in range(N)], group=group)
        elif name == "all_to_all_single":
            dist.all_to_all_single(one, of(count, dtype), group=group)
        elif name == "reduce_scatter":
            dist.reduce_scatter(one, all_, group=group)
        else:
            dist.reduce_scatter_tensor(one, of(N * count, dtype), group=group)

    return call


CASES = {
    "all_reduce of bool and uint8": [
        reduced("all_reduce", torch.bool, 8, MAX),
        reduced("all_reduce", torch.uint8, 8, MAX),
    ],
    "all_reduce of bool by MAX and BOR": [
        reduced("all_reduce", torch.bool, 8, MAX),
        reduced("all_reduce", torch.bool, 8, BOR),
    ],
}
for name in (
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "gather",
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "scatter",
    "all_to_all",
    "all_to_all_single",
):
    CASES[f"{name} of complex and real"] = [moved(name, torch.complex64, 8), moved(name, torch.float32, 16)]
for name in (
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_single",
):
    CASES[f"{name} of int16 and uint16"] = [moved(name, INT16, 8), moved(name, UINT16, 8)]
    CASES[f"{name} of float8 and bool"] = [moved(name, FLOAT8, 8), moved(name, torch.bool, 8)]
    CASES[f"{name} of uint8 and bool"] = [moved(name, torch.uint8, 8), moved(name, torch.bool, 8)]
CASES["scatter and gather, both from 1 to 0"] = [
    lambda group: dist.scatter(torch.ones(8), None, 1, group=group),
    lambda group: dist.gather(torch.ones(8), None, 0, group=group),
]
CASES["all_gather of unequal sizes and broadcasts"] = [
    lambda group: dist.all_gather([torch.ones(8), torch.ones(9)], torch.ones(8), group=group),
    lambda group: dist.broadcast(torch.ones(8), 0, group=group),
]
CASES["reduce_scatter of unequal sizes and reductions"] = [
    lambda group: dist.reduce_scatter(torch.ones(8), [torch.ones(8), torch.ones(9)], group=group),
    lambda group: dist.reduce(torch.ones(8), 0, group=group),
]
