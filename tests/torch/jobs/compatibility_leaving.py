"""A rank that leaves does not end receives from others.

Ranks that leave in good order concern nobody who receives from others, until nobody is left to send.

Run by tests/torch/test_compatibility.py.
"""

import time

import pytest
import torch
import torch.distributed as dist
from compatibility_check import group
from support.torch_rank import R

import weft

store = group.get_group_store()
if R == 2:
    dist.send(torch.full((1,), 2.0), 0)
elif R == 1:
    store.wait(["received"])  # until then only rank 2 has sent
    time.sleep(0.5)  # rank 2 has left
    dist.send(torch.full((1,), 1.0), 0)
else:
    works = [(dist.irecv(box), box) for box in torch.zeros(3, 1)]
    works[0][0].wait()
    assert works[0][0].source_rank() == 2
    store.set("received", "")
    works[1][0].wait()
    assert works[1][0].source_rank() == 1
    assert works[1][1].item() == 1.0
    with pytest.raises(weft.PeerLost, match=r"has left the process group|has closed"):
        works[2][0].wait()  # everybody has left
dist.destroy_process_group()
