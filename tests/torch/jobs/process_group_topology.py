"""The topology of the environment is that of all ranks.

Run by tests/torch/test_process_group.py.
"""

import torch.distributed as dist
from support.torch_rank import N, R

import weft.torch

assert weft.torch.communicator().plan.topology.ranks == N
part = dist.new_group([0, 1])
if R < 2:
    assert weft.torch.communicator(part).plan is None
dist.destroy_process_group()
