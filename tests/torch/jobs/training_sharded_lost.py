"""A rank dies within a backward pass of FSDP2 whose collectives run behind computing.

Run by tests/torch/test_training.py.
"""

import copy
import os

import torch
from support.torch_rank import R
from torch import nn
from torch.distributed.fsdp import fully_shard
from training_model import data, loss, mine, model, wanted

import weft
import weft.torch

net = copy.deepcopy(model)
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
weft.torch.overlap_fsdp(net, optimizer)
steps = 0
try:
    for x, y in zip(data, wanted, strict=True):
        found = loss(net, x[mine], y[mine])
        if R == 1 and steps == 1:  # for the next forward pass
            net[2].register_full_backward_hook(lambda *_: os._exit(0))
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        steps += 1
except weft.PeerLost as lost:
    assert lost.rank == 1
    assert steps == 2
else:
    raise AssertionError("went on without a rank")
os._exit(0)  # the group cannot end in good order any more
