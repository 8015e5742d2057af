"""One rank of a measured training: the same model under several ways of sending, in turn, in one job.

Started by `training.py` on every host of an emulated cluster. All these hosts share the processors of one
machine, so computation is emulated: every block sleeps as long as asked for, in the forward and in the
backward pass, and then computes its gradients, which are real, on a small batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import weft
from weft.torch.dear import DeAR
from weft.training import ideal_dear, ideal_wfbp

WIDTH = 512
BATCH = 4


class Sleep(torch.autograd.Function):
    """Takes time, as computing would."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        """Sleep."""
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Sleep."""
        time.sleep(ctx.backward_s)
        return gradient, None, None


class Block(nn.Module):
    """A layer that takes as long as asked for, before its gradients are ready."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.times = forward_s, backward_s
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute, and take time."""
        return Sleep.apply(torch.relu(self.linear(x)) + x, *self.times)


def make(asked: argparse.Namespace) -> nn.Module:
    """The model, the same on every rank."""
    torch.manual_seed(0)
    times = asked.forward / asked.blocks, asked.backward / asked.blocks
    return nn.Sequential(*(Block(*times) for _ in range(asked.blocks)))


class Way:
    """One way of sending: ``alone``, ``ddp MB``, or a policy of DeAR."""

    def __init__(self, name: str, asked: argparse.Namespace, comm: weft.Communicator) -> None:
        self.name, self.model = name, make(asked)
        words = {"lr": 1e-3, "momentum": 0.9}
        kind, _, size = name.partition(" ")
        self.ddp: Any = self.model
        if kind == "ddp":
            self.ddp = nn.parallel.DistributedDataParallel(self.model, bucket_cap_mb=float(size))
        if kind in ("ddp", "alone"):
            self.optimizer: Any = torch.optim.SGD(self.model.parameters(), **words)
        else:
            self.optimizer = DeAR(
                self.model, torch.optim.SGD, group=comm, policy=kind, tune=asked.tune, **words
            )

    def step(self, x: torch.Tensor) -> None:
        """One iteration."""
        self.optimizer.zero_grad()
        self.ddp(x).square().mean().backward()
        self.optimizer.step()

    def settle(self, x: torch.Tensor) -> None:
        """Train until it changes no more."""
        self.step(x)
        while getattr(self.optimizer, "tuning", False):
            self.step(x)


def measure(way: Way, x: torch.Tensor, comm: weft.Communicator, steps: int) -> float:
    """Seconds of a step, once the pipeline is full."""
    way.step(x)
    way.step(x)
    comm.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        way.step(x)
    taken = torch.tensor([(time.perf_counter() - begun) / steps])
    if isinstance(way.optimizer, DeAR):
        way.optimizer.synchronize()  # so that nothing of it meets the next way's traffic
    comm.all_reduce(taken, "max")
    return float(taken)


def describe(optimizer: DeAR) -> dict[str, Any]:
    """What DeAR measured, chose and expects."""
    layers, costs = optimizer.layers, optimizer.costs
    assert layers is not None
    assert costs is not None
    size = sum(layer.size_bytes for layer in layers)
    return {
        "groups_bytes": [group.size_bytes for group in optimizer.fusion.groups],
        "policy": optimizer.fusion.policy,
        "decision": optimizer.decision,
        "forward_s": sum(layer.forward_s for layer in layers),
        "backward_s": sum(layer.backward_s for layer in layers),
        "reduce_scatter_s": costs.reduce_scatter(size),
        "all_gather_s": costs.all_gather(size),
        "all_reduce_s": costs.all_reduce(size),
        "ideal_wfbp_s": ideal_wfbp(layers, costs),
        "ideal_dear_s": ideal_dear(layers, costs),
        "predicted_s": optimizer.expected_s,
    }


def main() -> None:
    """Train in every way, in turn; rank 0 writes what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="+", required=True)
    parser.add_argument("--order", type=int, nargs="+", help="rank of each rank in gloo's group")
    parser.add_argument("--forward", type=float, required=True)
    parser.add_argument("--backward", type=float, required=True)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    order = asked.order or list(range(size))
    where, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(where, port, size, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=order[rank], world_size=size)
    comm = weft.init(timeout=120)
    x = torch.randn(BATCH, WIDTH)
    ways = [Way(name, asked, comm) for name in asked.ways]
    for way in ways:
        way.settle(x)
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(asked.rounds):
        for way in ways:
            times[way.name].append(measure(way, x, comm, asked.steps))
    if rank == 0:
        size_bytes = sum(p.numel() * p.element_size() for p in ways[0].model.parameters())
        rows: list[dict[str, Any]] = [{"way": way.name, "iteration_s": times[way.name]} for way in ways]
        for row, way in zip(rows, ways, strict=True):
            if isinstance(way.optimizer, DeAR):
                row["model"] = describe(way.optimizer)
        asked.output.parent.mkdir(exist_ok=True)
        asked.output.write_text(json.dumps({"size_bytes": size_bytes, "results": rows}), "utf-8")
        print({name: round(statistics.median(v), 4) for name, v in times.items()}, file=sys.stderr)
    comm.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
