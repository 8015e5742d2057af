"""A process that exits finishes what it has started.

Rank 0 ends without waiting: its part of the operation reaches the others, who come later.

Run by tests/torch/test_endings.py.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from support.torch_rank import N, R

x, y = torch.ones(100_000), torch.full((100_000,), 5.0)
if R == 0:
    dist.send(y, 1)
if R == 1:
    dist.recv(torch.ones(100_000), 0)
dist.barrier()
if R == 0:
    dist.all_reduce(x, async_op=True)
    for other in (1, 2):
        dist.isend(y, other)
    sys.exit(0)
time.sleep(0.5)
dist.all_reduce(x)
assert (x == N).all()
time.sleep(0.5)
y = torch.zeros(100_000)
dist.recv(y, 0)
assert (y == 5).all()
os._exit(0)
