"""The hook on some of the ranks.

Run by tests/torch/test_training.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import R
from torch.nn.parallel import DistributedDataParallel as DDP

import weft
import weft.torch

try:
    weft.torch.ddp_hook(wire="fp8")
except weft.InputError as error:
    assert "expected 'fp16', 'bf16' or None" in str(error)
else:
    raise AssertionError
half = [dist.new_group([0, 1]), dist.new_group([2, 3])][R // 2]
net = torch.nn.Linear(3, 3).to(torch.bfloat16)
ddp = DDP(net, process_group=half)
ddp.register_comm_hook(None, weft.torch.ddp_hook(group=half))
ddp(torch.full((1, 3), float(R), dtype=torch.bfloat16)).sum().backward()
assert (net.weight.grad == (0.5 if R < 2 else 2.5)).all(), net.weight.grad
dist.barrier()  # rank 0 serves the store that the others still meet through
dist.destroy_process_group()
