"""What several jobs of tests/torch/test_dear_use.py share."""

import torch
from support.torch_rank import R
from torch import nn

import weft

torch.set_num_threads(1)


def make(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 5))


def batch(step, dtype=torch.float32):
    torch.manual_seed(1000 + 10 * step + R)
    return torch.randn(4, 12), torch.randn(4, 5)


def train(model, optimizer, first, last):
    for step in range(first, last):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def refused(call, text, kind=weft.InputError):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError("not refused: " + text)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
