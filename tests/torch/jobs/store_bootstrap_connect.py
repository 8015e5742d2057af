"""A communicator of the ranks of any group.

Run by tests/torch/test_store_bootstrap.py.
"""

import torch
import torch.distributed as dist
from support.torch_rank import N, R

import weft
import weft.torch

comm = weft.torch.connect(timeout=30)
assert (comm.rank, comm.size, comm.timeout) == (R, N, 30)
x = torch.full((1000,), float(R))
comm.all_reduce(x)
assert (x == sum(range(N))).all()
again = weft.torch.connect(topology=f"ring:{N}", plan_time_limit=1.0)
assert again.plan.topology.ranks == N
comm.close()
again.all_reduce(x)
half = dist.new_group([0, 1])
if R < 2:
    part = weft.torch.connect(half, algorithm="ring")
    assert part.size == 2
    assert part.all_reduce(torch.ones(3))[0] == 2
else:
    try:
        weft.torch.connect(half)
    except weft.InputError as error:
        assert "not in the group" in str(error)
    else:
        raise AssertionError
dist.destroy_process_group()
