"""One rank of a measured training: the same model under several ways of sending, in turn, in one job.

Started by `lab_training.py` on every host of an emulated cluster. All these hosts share the processors of one
machine, so computation is emulated: every block sleeps as long as asked for, in the forward and in the
backward pass, and then computes its gradients, which are real, on a small batch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
import warnings
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import weft
import weft.torch
from weft.topology import Topology, load_topology
from weft.topology.graph import Routing
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
    torch.manual_seed(asked.seed)
    times = asked.forward / asked.blocks, asked.backward / asked.blocks
    return nn.Sequential(*(Block(*times) for _ in range(asked.blocks)))


class Way:
    """One way of sending: ``alone``, a policy of DeAR, ``fsdp`` or ``overlap`` and a backend, or DDP.

    ``ddp MB`` is DistributedDataParallel on gloo with buckets of so many megabytes, ``ddp weft MB`` on Weft.
    """

    def __init__(
        self, name: str, asked: argparse.Namespace, comm: weft.Communicator, groups: dict[str, Any]
    ) -> None:
        self.name, self.model = name, make(asked)
        words = {"lr": 1e-3, "momentum": 0.9}
        kind, _, more = name.partition(" ")
        self.ddp: Any = self.model
        self.overlap: Any = None
        if kind == "ddp":
            backend, _, megabytes = more.rpartition(" ")
            self.ddp = nn.parallel.DistributedDataParallel(
                self.model, process_group=groups.get(backend), bucket_cap_mb=float(megabytes)
            )
        if kind in ("fsdp", "overlap"):
            mesh = DeviceMesh.from_group(groups[more], "cpu")
            for block in self.model.children():
                fully_shard(block, mesh=mesh, reshard_after_forward=False)
            fully_shard(self.model, mesh=mesh)
        if kind in ("ddp", "alone", "fsdp", "overlap"):
            self.optimizer: Any = torch.optim.SGD(self.model.parameters(), **words)
        else:
            # Of the policies only the one that is to be found tries others.
            self.optimizer = DeAR(
                self.model, torch.optim.SGD, group=comm, policy=kind, tune=kind == "auto", **words
            )
        if kind == "overlap":
            self.overlap = weft.torch.overlap_fsdp(self.model, self.optimizer)

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

    def finish(self) -> None:
        """Wait for what is under way, so that nothing of it meets the next way's traffic."""
        if isinstance(self.optimizer, DeAR):
            self.optimizer.synchronize()
        if self.overlap is not None:
            self.overlap.discard()


def measure(way: Way, x: torch.Tensor, comm: weft.Communicator, steps: int) -> float:
    """Seconds of a step, once the pipeline is full."""
    way.step(x)
    way.step(x)
    comm.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        way.step(x)
    taken = torch.tensor([(time.perf_counter() - begun) / steps])
    way.finish()
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


def write(output: Path, ways: list[Way], times: dict[str, list[float]]) -> None:
    """Write all rounds so far, so that a job that is stopped has something to show."""
    size_bytes = sum(p.numel() * p.element_size() for p in ways[0].model.parameters())
    rows: list[dict[str, Any]] = [{"way": way.name, "iteration_s": times[way.name]} for way in ways]
    for row, way in zip(rows, ways, strict=True):
        if isinstance(way.optimizer, DeAR):
            row["model"] = describe(way.optimizer)
    part = output.with_suffix(".part")
    part.write_text(json.dumps({"size_bytes": size_bytes, "results": rows}), "utf-8")
    part.replace(output)


def renumber(file: str, order: list[int]) -> Topology:
    """The emulated cluster as groups see it whose ranks are not numbered as the cluster's are."""
    cluster = load_topology(file)
    numbers = np.array([*order, *range(cluster.ranks, cluster.nodes)], np.int32)
    return replace(
        cluster,
        link_src=numbers[cluster.link_src],
        link_dst=numbers[cluster.link_dst],
        grid=None,
        routing=Routing(),
    )


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
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and the order of the ways")
    parser.add_argument("--minutes", type=float, default=30.0, help="no round is begun that would end later")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    begun = time.monotonic()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    order = asked.order or list(range(size))
    where, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(where, port, size, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=order[rank], world_size=size)
    comm = weft.init(timeout=120)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1000 * asked.seed + rank))
    backends = {name.split()[1] for name in asked.ways if name.startswith(("fsdp", "overlap", "ddp weft"))}
    options = (
        weft.torch.Options(topology=renumber(os.environ["WEFT_TOPOLOGY"], order)) if asked.order else None
    )
    groups = {
        backend: dist.new_group(backend=backend, pg_options=options if backend == "weft" else None)
        for backend in sorted(backends)
    }
    ways = [Way(name, asked, comm, groups) for name in asked.ways]
    for way in ways:
        way.settle(x)
        way.finish()
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    chance = random.Random(asked.seed)
    for number in range(asked.rounds):
        round_begun = time.monotonic()
        for way in chance.sample(ways, len(ways)):
            times[way.name].append(measure(way, x, comm, asked.steps))
        if rank == 0:
            write(asked.output, ways, times)
        now = time.monotonic()
        took, spent = now - round_begun, now - begun
        over = torch.tensor([float(spent + took > 60 * asked.minutes)])
        comm.all_reduce(over, "max")
        to_go = min((asked.rounds - number - 1) * took, 60 * asked.minutes - spent)
        if rank == 0:
            print(f"round {number + 1} of {asked.rounds}; {to_go / 60:.1f} min to go", file=sys.stderr)
        if over:
            break
    if rank == 0:
        print({name: round(statistics.median(v), 4) for name, v in times.items()}, file=sys.stderr)
    comm.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
