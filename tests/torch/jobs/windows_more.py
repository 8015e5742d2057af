"""A rank that gathers more than the others is named.

A rank that starts one gather more than the others is named, not waited for.

Run by tests/torch/test_windows.py.
"""

import pytest
import torch
import torch.distributed as dist
from support.torch_rank import N, R

import weft

room = [torch.zeros(1) for _ in range(N)] if R == 0 else None
works = [dist.gather(torch.ones(1), room, async_op=True) for _ in range(2 + (R == 1))]
with pytest.raises((weft.DesyncError, weft.PeerLost)) as caught:
    for work in works:
        work.wait()
    dist.all_reduce(torch.ones(1))
if R == 0:
    assert isinstance(caught.value, weft.DesyncError) and caught.value.rank == 1, caught.value
dist.destroy_process_group()
