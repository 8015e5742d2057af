"""A process group of backend weft beside one of gloo: single collectives, FSDP2, ZeRO, and DDP with the hook.

All contestants are in the same processes and take turns, so that whatever else the machine does meets all of
them alike. A turn takes as long as its slowest rank. Every result of a collective is compared with what it
must be. Communication of DDP is the backward pass minus one without communication, of the same model.

    python benchmarks/torch/process_group.py       # into results/process_group.json beside this file
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

RESULTS = Path(__file__).with_name("results") / "process_group.json"
SIZES = {"64KiB": 64 << 10, "1MiB": 1 << 20, "64MiB": 64 << 20}
WIDTH = 2048
SHARDED_LAYERS, DDP_LAYERS = 4, 6  # of 16 MiB each
WARMING_UP = 3  # turns that do not count: DDP arranges its buckets anew after the first


def summary(turns: list[dict[str, float]], first: str) -> dict[str, Any]:
    """Median, spread and ratio to the first contestant, over turns."""
    found: dict[str, Any] = {}
    for name in turns[0]:
        seconds = sorted(turn[name] for turn in turns)
        ratios = sorted(turn[first] / turn[name] for turn in turns if turn[name] > 0)
        found[name] = {
            "median_ms": round(1e3 * statistics.median(seconds), 3),
            "min_ms": round(1e3 * seconds[0], 3),
            "max_ms": round(1e3 * seconds[-1], 3),
            f"{first}_over_this": round(statistics.median(ratios), 2) if ratios else None,
            f"{first}_over_this_range": [round(ratios[0], 2), round(ratios[-1], 2)] if ratios else None,
        }
    return found


def row(kind: str, what: str, turns: list[dict[str, float]]) -> dict[str, Any]:
    """One result of the file."""
    return {"kind": kind, "what": what, "contestants": summary(turns, "gloo")}


def beyond(turns: list[dict[str, float]], alone: float, names: list[str]) -> list[dict[str, float]]:
    """What turns take longer than the same work alone."""
    return [{name: max(1e-6, turn[name] - alone) for name in names} for turn in turns]


class Rank:
    """One of the processes that measure."""

    def __init__(self, rounds: int) -> None:
        import torch
        from torch import distributed as dist

        import weft.torch  # noqa: F401 - registers the backend

        self.torch, self.dist, self.rounds = torch, dist, rounds
        dist.init_process_group("gloo")
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.groups = {"gloo": dist.new_group(backend="gloo"), "weft": dist.new_group(backend="weft")}

    def take_turns(self, calls: dict[str, Callable[[], float]], rounds: int) -> list[dict[str, float]]:
        """Seconds of the slowest rank, for each turn of each contestant."""
        turns = []
        for number in range(rounds + WARMING_UP):
            names = list(calls) if number % 2 else list(reversed(calls))
            turn = {}
            for name in names:
                self.dist.barrier()
                turn[name] = calls[name]()
            turns.append(turn)
        everybody: list[Any] = [None] * self.ranks
        self.dist.all_gather_object(everybody, turns[WARMING_UP:])
        return [
            {name: max(other[number][name] for other in everybody) for name in calls}
            for number in range(rounds)
        ]

    def timed(self, call: Callable[[], Any], times: int = 1) -> Callable[[], float]:
        """The same call so many times, as seconds for one."""

        def run() -> float:
            began = time.perf_counter()
            for _ in range(times):
                call()
            return (time.perf_counter() - began) / times

        return run

    def collectives(self) -> list[dict[str, Any]]:
        """All-reduce, reduce-scatter and all-gather of each size; the size is that of the larger tensor."""
        found = []
        for label, size in SIZES.items():
            elements = size // 4
            times = max(1, min(50, (4 << 20) // size))
            for name in ("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor"):
                calls = {which: self.timed(self._call(name, which, elements), times) for which in self.groups}
                turns = self.take_turns(calls, self.rounds)
                found.append(row("collective", f"{name} {label}", turns))
        return found

    def _call(self, name: str, which: str, elements: int) -> Callable[[], None]:
        torch, dist, group = self.torch, self.dist, self.groups[which]
        whole, share = torch.ones(elements), torch.ones(elements // self.ranks)

        def call() -> None:
            if name == "all_reduce":
                dist.all_reduce(whole, group=group)
            elif name == "reduce_scatter_tensor":
                dist.reduce_scatter_tensor(share, whole, group=group)
            else:
                dist.all_gather_into_tensor(whole, share, group=group)

        def check() -> None:
            mine = slice(self.rank * share.numel(), (self.rank + 1) * share.numel())
            whole.fill_(self.rank + 1)
            share.fill_(self.rank + 1)
            call()
            total = sum(range(1, self.ranks + 1))
            if name == "all_reduce":
                assert (whole == total).all()
            elif name == "reduce_scatter_tensor":
                assert (share == total).all()
            else:
                assert (whole[mine] == self.rank + 1).all()
                assert whole.sum().item() == total * share.numel()
            whole.fill_(0)  # sums of sums would grow out of range
            share.fill_(0)

        check()
        return call

    def model(self, layers: int) -> Any:
        """So many square layers, the same on all ranks."""
        self.torch.manual_seed(0)
        return self.torch.nn.Sequential(*[self.torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)])

    def sharded(self) -> list[dict[str, Any]]:
        """Whole steps of FSDP2 and of DDP with ZeroRedundancyOptimizer."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.optim import ZeroRedundancyOptimizer
        from torch.nn.parallel import DistributedDataParallel

        torch, steps = self.torch, {}
        for which, group in self.groups.items():
            net = self.model(SHARDED_LAYERS)
            mesh = DeviceMesh.from_group(group, "cpu")
            for layer in net:
                fully_shard(layer, mesh=mesh)
            fully_shard(net, mesh=mesh)
            steps["FSDP2", which] = net, torch.optim.SGD(net.parameters(), lr=1e-3)
            net = DistributedDataParallel(self.model(SHARDED_LAYERS), process_group=group)
            optimizer = ZeroRedundancyOptimizer(
                net.parameters(), torch.optim.SGD, process_group=group, lr=1e-3
            )
            steps["ZeRO", which] = net, optimizer
        net = self.model(SHARDED_LAYERS)
        alone = net, torch.optim.SGD(net.parameters(), lr=1e-3)
        x = torch.randn(4, WIDTH)

        def step(net: Any, optimizer: Any) -> Callable[[], None]:
            def run() -> None:
                optimizer.zero_grad()
                net(x).pow(2).mean().backward()
                optimizer.step()

            return run

        found = []
        for kind in ("FSDP2", "ZeRO"):
            calls = {which: self.timed(step(*steps[kind, which])) for which in self.groups}
            calls["alone"] = self.timed(step(*alone))
            turns = self.take_turns(calls, self.rounds)
            longer = beyond(turns, statistics.median(turn["alone"] for turn in turns), list(self.groups))
            found.append(row("sharded", f"{kind} step, 64 MiB of weights", turns))
            title = f"{kind} step, what it takes longer than one of one process alone"
            found.append(row("sharded", title, longer))
        return found

    def ddp(self) -> tuple[float, list[dict[str, Any]]]:
        """Backward pass of DDP and its communication: on gloo, on gloo with the hook, on weft.

        The first number is the milliseconds of a backward pass without communication.
        """
        from torch.nn.parallel import DistributedDataParallel

        from weft.torch import ddp_hook

        x = self.torch.randn(4, WIDTH)
        nets = {}
        for name in ("gloo", "gloo with ddp_hook", "weft"):
            group = self.groups[name.split()[0]]
            # Gradients lie in the buckets: copying them there would be no communication, but count as it.
            nets[name] = DistributedDataParallel(
                self.model(DDP_LAYERS), process_group=group, gradient_as_bucket_view=True
            )
        nets["gloo with ddp_hook"].register_comm_hook(None, ddp_hook(group=self.groups["gloo"]))

        def backward(net: Any) -> float:
            net.zero_grad(set_to_none=False)
            loss = net(x).pow(2).mean()
            began = time.perf_counter()
            loss.backward()
            return time.perf_counter() - began

        def quiet(net: Any) -> float:
            with net.no_sync():
                return backward(net)

        calls: dict[str, Callable[[], float]] = {}
        for name, net in nets.items():
            calls[name] = lambda net=net: backward(net)
            calls[f"{name}, no_sync"] = lambda net=net: quiet(net)
        turns = self.take_turns(calls, self.rounds)
        alone = statistics.median(turn[f"{name}, no_sync"] for turn in turns for name in nets)
        return round(1e3 * alone, 3), [
            row("ddp", "backward, 100 MB of gradients", [{n: t[n] for n in nets} for t in turns]),
            row("ddp", "communication of a step", beyond(turns, alone, list(nets))),
        ]


def table() -> str:
    """The ratios in the result file, for docs/pytorch.md."""
    found = result_files.read(RESULTS)
    lines = ["| gloo takes so many times as long | median | range |", "|---|---|---|"]
    for one in found["results"]:
        for name, times in one["contestants"].items():
            if name in ("gloo", "alone"):
                continue
            low, high = times["gloo_over_this_range"]
            who = f": {name}" if one["kind"] == "ddp" else ""
            lines.append(f"| {one['what']}{who} | {times['gloo_over_this']:.1f} | {low:.1f} to {high:.1f} |")
    quiet = found["summary"]["backward_without_communication_ms"]
    return "\n".join([*lines, "", f"A backward pass of DDP without communication took {quiet:.0f} ms.", ""])


def measure(rounds: int, output: Path) -> None:
    """One rank's part; the first writes."""
    started = result_files.start()
    rank = Rank(rounds)
    rows = [*rank.collectives(), *rank.sharded()]
    quiet_ms, training = rank.ddp()
    rows += training
    if rank.rank == 0:
        result_files.write(
            output,
            started,
            parameters={
                "ranks": rank.ranks,
                "rounds": rounds,
                "threads_per_rank": rank.torch.get_num_threads(),
            },
            summary={"backward_without_communication_ms": quiet_ms},
            results=rows,
        )
        print(json.dumps(rows, indent=1))
    rank.dist.barrier()
    rank.dist.destroy_process_group()


def main() -> None:
    """Start the ranks and wait for them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--ranks", type=int, default=4)
    parser.add_argument("-r", "--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    if "RANK" in os.environ:
        measure(given.rounds, given.output)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(given.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    job["OMP_NUM_THREADS"] = "1"
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **job, "RANK": str(rank)})
        for rank in range(given.ranks)
    ]
    sys.exit(max(process.wait(1800) for process in ranks))


if __name__ == "__main__":
    main()
