"""Any group will do.

Run by tests/torch/test_dear_use.py.
"""

import warnings

import torch
import torch.distributed as dist
from dear_use_model import flat, make, train
from support.torch_rank import BACKEND, WORDS, N, R
from torch import nn

import weft.torch

for word in WORDS:
    mode, policy = word.split(",")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(R)
        optimizer = weft.torch.DeAR(model, torch.optim.SGD, mode=mode, policy=policy, lr=0.1)
        assert any("gloo's reduce-scatter" in str(one.message) for one in caught) == (BACKEND == "gloo")
    twin = make()
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for step in range(12):
        train(model, optimizer, step, step + 1)
        other.zero_grad()
        for rank in range(N):
            torch.manual_seed(1000 + 10 * step + rank)
            x, y = torch.randn(4, 12), torch.randn(4, 5)
            (nn.functional.mse_loss(twin(x), y) / N).backward()
        other.step()
    optimizer.synchronize()
    assert (flat(model) - flat(twin)).abs().max() < 1e-6, word
    optimizer.close()
dist.destroy_process_group()
