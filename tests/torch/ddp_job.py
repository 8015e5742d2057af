"""A job: a few steps of DistributedDataParallel in some of several ways; rank 0 prints losses and weights.

It knows nothing of a backend but its name, so that one backend's run can be compared with another's.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel

import weft.torch  # registers the backend

BATCH, STEPS, WORDS = 8, 6, 40


def make_dense() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4))


def make_embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 16, sparse=True), nn.Flatten(), nn.Linear(4 * 16, 4))


def make_batch(step: int, rank: int, *, sparse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for the same step and rank, whatever the backend draws for itself."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    if sparse:  # words of this rank only, some of them several times, and a few of everybody's
        own = torch.randint(5 * rank, 5 * rank + 12, (BATCH, 4), generator=chance)
        return own % WORDS, torch.randn(BATCH, 4, generator=chance)
    return torch.randn(BATCH, 24, generator=chance), torch.randn(BATCH, 4, generator=chance)


def register(model: DistributedDataParallel, case: str) -> None:
    hooks = {
        "powersgd": power_sgd.powerSGD_hook,
        "powersgd-fp16": default_hooks.fp16_compress_wrapper(power_sgd.powerSGD_hook),
    }
    if case in hooks:
        # The second step is the first that may be compressed. Every matrix here is large enough to be.
        state = power_sgd.PowerSGDState(
            process_group=None, start_powerSGD_iter=2, min_compression_rate=1, matrix_approximation_rank=2
        )
        model.register_comm_hook(state, hooks[case])


def train(case: str) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    sparse = case.startswith("sparse")
    net = make_embedding() if sparse else make_dense()
    model = DistributedDataParallel(net)
    register(model, case)
    if case == "sparse-adam":
        optimizers = [
            torch.optim.SparseAdam(net[0].parameters(), lr=0.05),
            torch.optim.Adam(net[2].parameters(), lr=0.05),
        ]
    else:
        # Sparse gradients and momentum do not go together.
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.05, momentum=0 if sparse else 0.9)]
    uneven = case.startswith("join")
    joining = model.join(divide_by_initial_world_size=case == "join-initial", enable=uneven)
    losses = []
    with joining:
        for step in range(STEPS + 3 * rank if uneven else STEPS):
            inputs, wanted = make_batch(step, rank, sparse=sparse)
            loss = (model(inputs) - wanted).square().mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    weights = [parameter.detach().flatten().tolist() for parameter in net.parameters()]
    everybody: list[list[float]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybody, losses)
    if rank == 0:
        weft_runs = isinstance(dist.group.WORLD, weft.torch.WeftProcessGroup)
        print(
            json.dumps({"case": case, "weft": weft_runs, "losses": everybody, "weights": weights}), flush=True
        )


def main(backend: str, *cases: str) -> None:
    dist.init_process_group(backend)
    for case in cases:
        train(case)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
