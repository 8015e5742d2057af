"""Torch tensors of every type are summed in place.

Run by tests/runtime/test_communicator.py.
"""

import torch

import weft

comm = weft.init()
total = sum(range(comm.size))
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64):
    tensor = torch.full((300, 101), comm.rank, dtype=dtype)
    comm.all_reduce(tensor)
    assert tensor.dtype == dtype and (tensor == total).all(), dtype
halves = torch.full((7,), comm.rank + 1, dtype=torch.bfloat16)
comm.all_reduce(halves, "avg")
assert (halves == torch.tensor((total + comm.size) / comm.size, dtype=torch.bfloat16)).all()
