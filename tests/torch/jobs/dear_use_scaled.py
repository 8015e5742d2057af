"""All ranks skip a step that is not finite anywhere.

Run by tests/torch/test_dear_use.py.
"""

import torch
import torch.distributed as dist
from dear_use_model import batch, flat, make, refused
from support.torch_rank import WORDS, N, R
from torch import nn

import weft.torch

model, twin = make(), make()
optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=WORDS[0], lr=0.1, fusion="3kB")
scaler = weft.torch.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
other = torch.optim.SGD(twin.parameters(), lr=0.1)
for step in range(8):
    x, y = batch(step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    if step == 3 and R == 1:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        optimizer.clip_grad_norm_(0.3)
    scaler.step(optimizer)
    scaler.update()
    other.zero_grad()
    for rank in range(N):
        torch.manual_seed(1000 + 10 * step + rank)
        x, y = torch.randn(4, 12), torch.randn(4, 5)
        (nn.functional.mse_loss(twin(x), y) / N).backward()
    if step % 2:
        nn.utils.clip_grad_norm_(twin.parameters(), 0.3)
    if step != 3:
        other.step()
assert scaler.get_scale() == 512.0
optimizer.synchronize()
assert (flat(model) - flat(twin)).abs().max() < 1e-6
# torch's own changes gradients that are under way.
stock = torch.amp.GradScaler("cpu")
optimizer.zero_grad()
stock.scale(nn.functional.mse_loss(model(x), y)).backward()


def step():
    stock.step(optimizer)


refused(step, "GradScaler")
dist.barrier()  # who leaves earlier takes what is under way with it
dist.destroy_process_group()
