"""Zero and fsdp2.

Run by tests/torch/test_training.py.
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from training_model import compare, data, loss, mine, model, reference, wanted


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


reference(adam)
net = copy.deepcopy(model)
ddp = DDP(net)
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
for x, y in zip(data, wanted, strict=False):
    optimizer.zero_grad()
    loss(ddp, x[mine], y[mine]).backward()
    optimizer.step()
compare(net.parameters(), 1e-5)

net = copy.deepcopy(model)
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(net)
optimizer = adam(net.parameters())
for x, y in zip(data, wanted, strict=False):
    optimizer.zero_grad()
    loss(net, x[mine], y[mine]).backward()
    optimizer.step()
compare([parameter.full_tensor() for parameter in net.parameters()], 1e-5)
dist.destroy_process_group()
