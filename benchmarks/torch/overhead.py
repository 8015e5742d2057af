"""What DeAR itself costs per fusion group and per parameter, in Python.

    python benchmarks/torch/overhead.py       # results/overhead.json

One rank, so that nothing is sent and every wait is over at once, but everything else is done: hooks, copies,
the thread that sends, the vote, updates. The same model is trained by its optimizer alone, by one optimizer
per layer, and by DeAR with one group and with a group per layer, in turn. CPU seconds of the thread that
trains and of all threads, and wall-clock seconds, medians of many short runs; differences are divided by
groups or parameters.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import weft.torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

LAYERS = 64
WIDTH = 16
STEPS = 20
ROUNDS = 25
WORDS = {"lr": 1e-3, "momentum": 0.9}
WAYS = ("alone", "an optimizer per layer", "one group", "a group per layer")


class Several:
    """One optimizer per layer."""

    def __init__(self, model: nn.Module) -> None:
        self._all = [torch.optim.SGD(layer.parameters(), **WORDS) for layer in model.children()]

    def zero_grad(self) -> None:
        """Clear gradients."""
        for one in self._all:
            one.zero_grad()

    def step(self) -> None:
        """Update everything."""
        for one in self._all:
            one.step()


def make() -> nn.Module:
    """Many small layers: what is computed is next to nothing."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def optimizer_of(way: str, model: nn.Module) -> Any:
    """What trains a model in one of the ways."""
    if way == "alone":
        return torch.optim.SGD(model.parameters(), **WORDS)
    if way == "an optimizer per layer":
        return Several(model)
    fusion = "100MB" if way == "one group" else 1
    return weft.torch.DeAR(model, torch.optim.SGD, policy="dear", fusion=fusion, **WORDS)


def main() -> None:
    """Measure in turn, and write what came out."""
    started = result_files.start()
    torch.set_num_threads(1)
    dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
    models = {way: make() for way in WAYS}
    optimizers = {way: optimizer_of(way, model) for way, model in models.items()}
    x = torch.randn(2, WIDTH)
    clocks = {"cpu_us": time.thread_time, "all_threads_us": time.process_time, "wall_us": time.perf_counter}
    times: dict[str, dict[str, list[float]]] = {way: {kind: [] for kind in clocks} for way in WAYS}
    for turn in range(ROUNDS + 1):
        for way, model in models.items():
            begun = {kind: clock() for kind, clock in clocks.items()}
            for _ in range(STEPS):
                optimizers[way].zero_grad()
                model(x).square().mean().backward()
                optimizers[way].step()
            if turn:  # the first fills caches
                for kind, clock in clocks.items():
                    times[way][kind].append((clock() - begun[kind]) / STEPS)
    step = {
        way: {kind: round(1e6 * statistics.median(some)) for kind, some in each.items()}
        for way, each in times.items()
    }
    summary = {
        "per_group": per(step["a group per layer"], step["one group"], LAYERS - 1),
        "of_which_the_optimizers_call": per(step["an optimizer per layer"], step["alone"], LAYERS - 1),
        "per_parameter": per(step["one group"], step["alone"], 2 * LAYERS),
    }
    result_files.write(
        Path(__file__).with_name("results") / "overhead.json",
        started,
        parameters={"layers": LAYERS, "width": WIDTH, "steps": STEPS, "rounds": ROUNDS},
        summary=summary,
        results=[
            {"way": way, **{f"step_{kind}": value for kind, value in each.items()}}
            for way, each in step.items()
        ],
    )
    print(json.dumps(summary, indent=1))
    dist.destroy_process_group()


def per(more: dict[str, int], less: dict[str, int], count: int) -> dict[str, float]:
    """What one takes more than the other, for each of so many."""
    return {kind: round((more[kind] - less[kind]) / count, 1) for kind in more}


if __name__ == "__main__":
    main()
