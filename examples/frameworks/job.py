"""What these examples share: the command line, data made here, and what rank 0 prints at the end."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn

import weft.torch

INPUTS, HIDDEN, OUTPUTS, SAMPLES = 16, 32, 4, 256


def make_parser(description: str, steps: int = 16) -> argparse.ArgumentParser:
    """Words that every example has; it may add others."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", choices=("weft", "gloo"), default="weft", help="process group")
    parser.add_argument("--steps", type=int, default=steps)
    return parser


def make_model() -> nn.Module:
    """The same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS))


def make_data() -> torch.utils.data.TensorDataset:
    """Samples of a function that can be learnt; each rank takes its part of them."""
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, INPUTS, generator=chance)
    mixing = torch.randn(INPUTS, OUTPUTS, generator=chance) / INPUTS**0.5
    return torch.utils.data.TensorDataset(inputs, torch.sin(inputs @ mixing))


def average(value: torch.Tensor | float) -> float:
    """Mean over ranks."""
    mean = torch.as_tensor(value, dtype=torch.float64).detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean.item()


def report(loss: float) -> None:
    """Rank 0 prints which group has run, and the loss; every rank calls this."""
    if dist.get_rank():
        return
    if isinstance(dist.group.WORLD, weft.torch.WeftProcessGroup):
        last = weft.torch.communicator().last
        print(f"group weft, {dist.get_world_size()} ranks, last: {last.collective} by {last.algorithm}")
    else:
        print(f"group {dist.get_backend()}, {dist.get_world_size()} ranks")
    print(f"loss {loss:.9f}", flush=True)
