"""Train a small model with DeAR on uneven hosts, beside the same training in one process.

Run by tests/lab/test_uneven_hosts.py.
"""

import sys

import torch
from torch import nn

import weft
from weft.algorithms import flexreduce
from weft.torch.dear import DeAR
from weft.torch.dear.weft_channel import WeftChannel

STEPS, BATCH = 4, 6
torch.set_num_threads(1)
topology, mode = sys.argv[1:]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(12, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 5)
    ).double()


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(100 * step + rank)
    inputs, wanted = (torch.randn(BATCH, width, generator=draw, dtype=torch.float64) for width in (12, 5))
    return nn.functional.mse_loss(model(inputs), wanted)


schedule = flexreduce.all_reduce(weft.load_topology(topology), shape="ring")
with weft.init(schedule=schedule, timeout=60) as comm:
    model, twin = make_model(), make_model()
    count = sum(parameter.numel() for parameter in model.parameters())
    halves = comm.halves(count, torch.float64)
    owned = [stop - start for start, stop in halves.owned]
    print("owned", *owned)
    chosen = {"lr": 0.05, "momentum": 0.9}
    optimizer = DeAR(
        model, list(model.parameters()), torch.optim.SGD, group=comm, mode=mode, policy="dear", **chosen
    )
    reference = torch.optim.SGD(twin.parameters(), **chosen)
    for step in range(STEPS):
        optimizer.zero_grad()
        mine = loss_of(model, step, comm.rank)
        mine.backward()
        optimizer.step()
        reference.zero_grad()
        every = [loss_of(twin, step, rank) for rank in range(comm.size)]
        torch.stack(every).mean().backward()
        reference.step()
        print("loss", step, f"{abs(mine.item() - every[comm.rank].item()):.1e}")
        assert abs(mine.item() - every[comm.rank].item()) < 1e-12
    optimizer.synchronize()
    apart = [(a - b).abs().max().item() for a, b in zip(model.parameters(), twin.parameters(), strict=True)]
    assert max(apart) < 1e-12, apart
    channel = optimizer._channel  # over a communicator of its own
    assert isinstance(channel, WeftChannel)
    last = channel.communicator.last  # the all-gather of the last step
    assert (last.algorithm, last.collective) == ("flexreduce", "second half of all_reduce"), last
    optimizer.close()
    print("trained")
