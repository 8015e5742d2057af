"""One rank of a measured training: the same model under several ways of sending, in turn, in one job.

Started by `training.py` on every host of an emulated cluster. Real computation: blocks of linear layers, with
a batch that makes the backward pass as long as asked for.
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

WIDTH = 512
BLOCKS = 8


class Block(nn.Module):
    """A layer that computes more than its parameters ask for: the batch is the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + x


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(BLOCKS)))


def settle_batch(comm: weft.Communicator, backward_s: float) -> int:
    """Batch for which the slowest rank's backward pass takes this long, while all compute."""
    model, batch = make(), 64
    while True:
        times = []
        for _ in range(5):
            loss = model(torch.randn(batch, WIDTH)).square().mean()
            comm.barrier()
            begun = time.perf_counter()
            loss.backward()
            times.append(time.perf_counter() - begun)
        took = torch.tensor([statistics.median(times)])
        comm.all_reduce(took, "max")
        if float(took) >= backward_s or batch >= 1 << 16:
            return max(8, round(batch * backward_s / float(took)))
        batch = min(1 << 16, max(batch + 8, int(batch * min(4.0, backward_s / float(took)) * 1.02)))


class Way:
    """One way of sending."""

    def __init__(self, name: str, comm: weft.Communicator, group: Any) -> None:
        self.name, self.model = name, make()
        if name == "ddp gloo":
            self.ddp: Any = nn.parallel.DistributedDataParallel(self.model, process_group=group)
            self.optimizer: Any = torch.optim.SGD(self.ddp.parameters(), lr=1e-3, momentum=0.9)
        elif name == "alone":
            self.ddp, self.optimizer = (
                self.model,
                torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9),
            )
        else:
            self.ddp = self.model
            self.optimizer = DeAR(
                self.model, torch.optim.SGD, group=comm, policy=name, lr=1e-3, momentum=0.9, timeout=120
            )

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.ddp(x).square().mean().backward()
        self.optimizer.step()

    def settled(self) -> bool:
        return not getattr(self.optimizer, "tuning", False)


def measure(way: Way, x: torch.Tensor, comm: weft.Communicator, steps: int) -> float:
    """Seconds of a step, after one to fill the pipeline."""
    way.step(x)
    comm.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        way.step(x)
    comm.barrier()  # whatever is under way at the end, is so at the beginning too
    return (time.perf_counter() - begun) / steps


def main() -> None:
    """Train in every way, in turn; rank 0 writes what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="+", required=True)
    parser.add_argument("--order", type=int, nargs="+", help="rank of each rank in gloo's group")
    parser.add_argument("--backward", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
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
    batch = settle_batch(comm, asked.backward)
    told = torch.tensor([batch])
    comm.broadcast(told)
    x = torch.randn(int(told), WIDTH)
    ways = [Way(name, comm, None) for name in asked.ways]
    for way in ways:
        while not way.settled():
            way.step(x)
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(asked.rounds):
        for way in ways:
            times[way.name].append(measure(way, x, comm, asked.steps))
    if rank == 0:
        found: dict[str, Any] = {
            "batch": int(told),
            "bytes": sum(p.numel() * 4 for p in ways[0].model.parameters()),
        }
        found["seconds"] = times
        for way in ways:
            if isinstance(way.optimizer, DeAR):
                o = way.optimizer
                found[way.name] = {
                    "groups": [g.size_bytes for g in o.fusion.groups],
                    "policy": o.fusion.policy,
                    "decision": o.decision,
                    "forward_s": sum(l.forward_s for l in o.layers or ()),
                    "backward_s": sum(l.backward_s for l in o.layers or ()),
                    "predicted_s": None if o._pilot.choice is None else o._pilot.choice.timeline.seconds,
                    "costs": None if o.costs is None else str(o.costs),
                }
        asked.output.write_text(json.dumps(found, indent=1))
        print({name: round(statistics.median(v), 4) for name, v in times.items()}, file=sys.stderr)
    comm.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
