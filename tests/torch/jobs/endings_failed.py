"""A process that exits does not wait for ever.

Rank 0 ends by an error while nobody else comes to the operation that it has started.

Run by tests/torch/test_endings.py.
"""

import time

import torch
import torch.distributed as dist
from support.torch_rank import R

dist.barrier()
if R == 0:
    dist.all_reduce(torch.ones(1000), async_op=True)
    dist.irecv(torch.ones(1000), 1)
    print("ends", flush=True)
    raise SystemExit(7)
time.sleep(600)
