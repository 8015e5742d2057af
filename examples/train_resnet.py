"""A small ResNet on images that are made up: DeAR, or DistributedDataParallel to compare.

torchrun --nproc-per-node 4 examples/train_resnet.py
torchrun --nproc-per-node 4 examples/train_resnet.py --way ddp --backend gloo
"""

from __future__ import annotations

import common
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import weft.torch

BATCH, CLASSES = 16, 10


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.around = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Half the height and width where the stride is 2."""
        found = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(found)) + self.around(x))


def make_model(width: int, depth: int) -> nn.Module:
    """Three stages of so many blocks each; 175 thousand parameters at width 16 and depth 2."""
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    stages: list[nn.Module] = []
    inside = width
    for outside, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
        stages.append(Block(inside, outside, stride))
        stages += [Block(outside, outside, 1) for _ in range(depth - 1)]
        inside = outside
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


def make_batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for the same step and rank, as a resumed job needs it: a pattern for each class, and noise."""
    patterns = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    chance = torch.Generator().manual_seed(1000 * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=chance)
    return patterns[labels] + 2 * torch.randn(BATCH, 3, 32, 32, generator=chance), labels


def main() -> None:
    """Train."""
    words = common.parse("Train a small ResNet.", width=16, depth=2, steps=60)
    torch.manual_seed(0)
    model = make_model(words.width, words.depth)
    recipe = {"lr": 0.02, "momentum": 0.9}

    # What a script needs of Weft: the import above, the group, the optimizer. The loop is the usual one.
    dist.init_process_group(words.backend)
    optimizer: torch.optim.Optimizer
    if words.way == "dear":
        optimizer = weft.torch.DeAR(
            model, torch.optim.SGD, mode=words.mode, policy=words.policy, fusion=words.fusion, **recipe
        )
        network = model
    else:
        network = DistributedDataParallel(model)
        if words.backend == "weft":
            network.register_comm_hook(None, weft.torch.ddp_hook())
        optimizer = torch.optim.SGD(model.parameters(), **recipe)

    training = common.Training(words, model, optimizer, BATCH, "samples")
    for step in training.steps():
        images, labels = make_batch(step, dist.get_rank())
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        training.report(step, loss)

    if isinstance(optimizer, weft.torch.DeAR):
        optimizer.close()  # the last update is applied, and the model is as it should be
    # If DDP were the last to let go of a gloo group, this process could hang: the end of the group waits for
    # gloo's threads while it holds the interpreter, and these wait for the interpreter.
    del network
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
