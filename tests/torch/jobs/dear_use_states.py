"""States and odd parameters are right or refused.

Run by tests/torch/test_dear_use.py.
"""

import torch
import torch.distributed as dist
from dear_use_model import batch, flat, make, refused
from support.torch_rank import R
from torch import nn

import weft
import weft.torch

SGD = torch.optim.SGD
x, y = batch(0)


def fresh(**words):
    model = make()
    return model, weft.torch.DeAR(model, SGD, **{"policy": "dear", "fusion": "3kB", "lr": 0.1, **words})


def loss(model):
    return nn.functional.mse_loss(model(x), y)


# What is loaded stays, although an update was under way.
model, optimizer = fresh()
kept = {name: value.clone() for name, value in model.state_dict().items()}
loss(model).backward()
optimizer.step()
model.load_state_dict(kept)
optimizer.synchronize()
assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())

# A policy that this mode does not have is not taken from a checkpoint.
model, optimizer = fresh(policy="wfbp")
saved = optimizer.state_dict()
model, optimizer = fresh(mode="parameters")
optimizer.load_state_dict(saved)
before = flat(model).clone()
loss(model).backward()
optimizer.step()
optimizer.synchronize()
assert optimizer.fusion.policy == "dear"
assert not torch.equal(flat(model), before)
refused(lambda: weft.torch.DeAR(model, SGD, mode="parameters", lr=0.1), "another DeAR")
model[0].weight.data = model[0].weight.data.clone()
optimizer.zero_grad()
loss(model).backward()
refused(optimizer.step, "moved in memory")
other = weft.torch.DeAR(nn.Linear(3, 3, bias=False), torch.optim.AdamW, lr=0.1).full_state_dict()
wide = weft.torch.DeAR(nn.Linear(9, 9, bias=False), torch.optim.AdamW, mode="parameters", lr=0.1)
other["state"] = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(9), "exp_avg_sq": torch.zeros(9)}}
refused(lambda: wide.load_state_dict(other), "of another model", weft.FormatError)


# A single number is a parameter too, in both modes.
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.nothing = nn.Parameter(torch.empty(0, 3))
        self.layer = nn.Linear(12, 5)

    def forward(self, x):
        return self.layer(x) * self.scale + self.nothing.sum()


scaled = Scaled()
optimizer = weft.torch.DeAR(scaled, torch.optim.AdamW, mode="parameters", fusion=1, lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss(scaled).backward()
    optimizer.clip_grad_norm_(0.5, float("inf"))
    optimizer.step()
optimizer.load_state_dict(optimizer.full_state_dict())
optimizer.zero_grad()
loss(scaled).backward()
optimizer.step()
optimizer.synchronize()

# One rank without any gradient is as good as zeros; all of them are a mistake.
model, optimizer = fresh()
if R == 0:
    loss(model).backward()
optimizer.step()
optimizer.synchronize()

# Ranks whose models differ find out at once, also by names alone.
named = nn.ModuleDict({"ab"[R]: nn.Linear(4, 4)})
refused(lambda: weft.torch.DeAR(named, SGD, lr=0.1), "fusion plan", weft.DesyncError)
dist.barrier()
dist.destroy_process_group()
