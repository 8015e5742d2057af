"""Workers of a loader do no harm.

Run by tests/torch/test_dear_use.py.
"""

import torch
import torch.distributed as dist
from dear_use_model import flat, make
from support.torch_rank import N
from torch import nn

import weft.torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.full((12,), float(i)), torch.zeros(5)


model = make()
optimizer = weft.torch.DeAR(model, torch.optim.SGD, lr=1e-4)
loader = torch.utils.data.DataLoader(Numbers(), 4, num_workers=2)
seen = 0
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        seen += 1
optimizer.synchronize()
total = flat(model).sum().double().reshape(1)
everybody = [torch.zeros_like(total) for _ in range(N)]
dist.all_gather(everybody, total)
assert seen == 20
assert all(torch.equal(one, total) for one in everybody)
dist.destroy_process_group()
