"""What several jobs of tests/torch/test_training.py share."""

import copy

import torch
import torch.distributed as dist
from support.torch_rank import N, R
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))
alone = copy.deepcopy(model)
data, wanted = torch.randn(5, 8 * N, 20), torch.randn(5, 8 * N, 5)
mine = slice(8 * R, 8 * (R + 1))


def loss(net, x, y):
    return (net(x) - y).pow(2).mean()


def reference(make):
    optimizer = make(alone.parameters())
    for x, y in zip(data, wanted, strict=False):
        optimizer.zero_grad()
        loss(alone, x, y).backward()
        optimizer.step()


def compare(parameters, tolerance=2e-6):
    for found, expected in zip(parameters, alone.parameters(), strict=True):
        assert torch.allclose(found, expected, atol=tolerance, rtol=0), (found - expected).abs().max()
        everybody = [torch.empty_like(found) for _ in range(N)]
        dist.all_gather(everybody, found.detach())
        assert all(torch.equal(found, other) for other in everybody)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
