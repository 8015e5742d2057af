"""One rank of a real training: the same transformer, from the same start, on the same text, in several ways.

Started by `transformer.py` on every host of an emulated cluster. Nothing is emulated but the network: ranks
compute forward and backward, and share the processors of one machine while they do. All ways take turns, a
few steps each, so that whatever else the machine does meets all of them.
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
from torch.nn import functional

import weft.torch

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS / "torch"))
sys.path.insert(0, str(BENCHMARKS.parent / "examples"))

from train_gpt import GPT, make_batch  # noqa: E402 - the model of the examples
from training_job import describe  # noqa: E402 - what the other benchmark says of DeAR

WARM_UP = 6
"""Steps before anything is timed. In the first three DeAR measures without overlap."""

RECIPE = {"lr": 1e-3, "weight_decay": 0.1}


class TrainingWay:
    """One way of sending: ``alone``, ``ddp BACKEND MEGABYTES``, or a policy of DeAR."""

    def __init__(self, name: str, words: argparse.Namespace, groups: dict[str, Any]) -> None:
        self.name = name
        torch.manual_seed(0)
        self.model = GPT(words.width, words.depth)
        self.network: nn.Module = self.model
        self.losses: list[torch.Tensor] = []
        self.passes_s: list[tuple[float, float]] = []
        kind, *rest = name.split()
        if kind == "ddp":
            backend, megabytes = rest
            self.network = nn.parallel.DistributedDataParallel(
                self.model, process_group=groups[backend], bucket_cap_mb=float(megabytes)
            )
        if kind in ("ddp", "alone"):
            self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), **RECIPE)
        else:
            self.optimizer = weft.torch.DeAR(
                self.model, torch.optim.AdamW, group=groups["weft"], policy=kind, tune=False, **RECIPE
            )

    def step(self, text: torch.Tensor, following: torch.Tensor) -> None:
        """One iteration."""
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.network(text).flatten(0, 1), following.flatten())
        middle = time.perf_counter()
        loss.backward()
        self.passes_s.append((middle - begun, time.perf_counter() - middle))
        self.optimizer.step()
        self.losses.append(loss.detach())

    def settle(self) -> None:
        """Wait for what is under way, so that it does not meet the traffic of the next way."""
        if isinstance(self.optimizer, weft.torch.DeAR):
            self.optimizer.synchronize()

    def close(self) -> None:
        """Give back connections, and let go of DDP before its group ends."""
        if isinstance(self.optimizer, weft.torch.DeAR):
            self.optimizer.close()
        self.network = self.model


def take_turns(
    ways: list[TrainingWay], words: argparse.Namespace, batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> dict[str, list[float]]:
    """Train in turn; seconds of a step for each way and round, of the slowest rank."""
    for way in ways:
        for batch in batches[:WARM_UP]:
            way.step(*batch)
        way.settle()
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(words.rounds):
        turn = batches[WARM_UP + number * (words.steps + 1) :][: words.steps + 1]
        for way in ways:
            dist.barrier()
            way.step(*turn[0])  # from here on the pipeline is full
            begun = time.perf_counter()
            for batch in turn[1:]:
                way.step(*batch)
            taken = torch.tensor([(time.perf_counter() - begun) / words.steps])
            way.settle()
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            times[way.name].append(float(taken))
    return times


def report(way: TrainingWay, times: list[float]) -> dict[str, Any]:
    """What came out of one way; every rank calls this."""
    losses = torch.stack(way.losses) / dist.get_world_size()
    dist.all_reduce(losses)
    passes = torch.tensor(way.passes_s[WARM_UP:])
    row: dict[str, Any] = {
        "way": way.name,
        "iteration_s": times,
        "forward_s": statistics.median(passes[:, 0].tolist()),
        "backward_s": statistics.median(passes[:, 1].tolist()),
        "losses": losses.tolist(),
    }
    if isinstance(way.optimizer, weft.torch.DeAR):
        row["model"] = describe(way.optimizer)
    return row


def main() -> None:
    """Train in every way, in turn; rank 0 writes what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    for name in ("width", "depth", "rounds", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    words = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=300)
    store = dist.TCPStore(where, port, ranks, is_master=rank == 0, timeout=patience)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=patience)
    groups = {"gloo": dist.group.WORLD, "weft": dist.new_group(backend="weft", timeout=patience)}
    count = WARM_UP + words.rounds * (words.steps + 1)
    batches = [make_batch(step, rank) for step in range(count)]
    ways = [TrainingWay(name, words, groups) for name in words.ways]
    times = take_turns(ways, words, batches)
    rows = [report(way, times[way.name]) for way in ways]
    if rank == 0:
        size_bytes = sum(one.numel() * one.element_size() for one in ways[0].model.parameters())
        words.output.write_text(json.dumps({"size_bytes": size_bytes, "results": rows}), "utf-8")
    for way in ways:
        way.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
