"""Training steps with many small parameters: DDP on backend weft and DeAR, beside DDP on gloo.

    python benchmarks/torch/small_parameters.py       # into results/small_parameters.json beside this file

There is hardly anything to compute or to send, so that what a step takes longer than that of one process
alone is what its communication costs beyond the bytes. DDP has all gradients in one bucket, its default here,
or a bucket for each parameter. All ways are in the same processes and take turns; a turn takes as long as its
slowest rank. Turns with a bucket for each parameter have a fifth of the steps. Processor seconds are those of
all ranks together. At the end all ways with as many steps must have the same parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

RESULTS = Path(__file__).with_name("results") / "small_parameters.json"
LAYERS, WIDTH = 100, 16  # 200 parameters
RANKS = (2, 4, 8)
WARMING_UP = 3
_LONGEST_S = 600
ONE_EACH = 1e-6
"""Megabytes of a bucket that one parameter fills."""

WAYS = ("DDP on gloo", "DDP on weft", "DDP on gloo, 200 buckets", "DDP on weft, 200 buckets", "DeAR", "alone")


def measure(rounds: int, steps: int, output: Path) -> None:
    """One rank's part; the first writes."""
    import torch
    from torch import distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import weft.torch

    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "weft")}

    def make(way: str) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net: Any = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        if way == "DeAR":
            options: dict[str, Any] = {"group": groups["weft"], "policy": "dear", "fusion": "25MB"}
            return net, weft.torch.DeAR(net, torch.optim.SGD, lr=1e-3, **options)
        if way != "alone":
            megabytes = ONE_EACH if "buckets" in way else 25
            group = groups["weft" if "weft" in way else "gloo"]
            net = DistributedDataParallel(
                net, process_group=group, bucket_cap_mb=megabytes, gradient_as_bucket_view=True
            )
        return net, torch.optim.SGD(net.parameters(), lr=1e-3)

    made = {way: make(way) for way in WAYS}
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    turns: list[dict[str, tuple[float, float]]] = []
    for number in range(rounds + WARMING_UP):
        turn = {}
        for way in WAYS if number % 2 else reversed(WAYS):
            net, optimizer = made[way]
            dist.barrier()
            began, processor = time.perf_counter(), time.process_time()
            for _ in range(steps_of(way, steps)):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            if way == "DeAR":
                optimizer.synchronize()
            took = time.perf_counter() - began, time.process_time() - processor
            turn[way] = took[0] / steps_of(way, steps), took[1] / steps_of(way, steps)
        turns.append(turn)
    for way in WAYS[:-1]:
        peer = "DDP on gloo, 200 buckets" if "buckets" in way else "DDP on gloo"
        for found, due in zip(made[way][0].parameters(), made[peer][0].parameters(), strict=True):
            if not torch.allclose(found, due, atol=1e-6):
                raise SystemExit(f"{way}: other parameters than those of {peer}")
    everybody: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, turns[WARMING_UP:])
    if dist.get_rank() == 0:
        rows = [describe(way, everybody) for way in WAYS]
        output.write_text(json.dumps(rows), "utf-8")
    made["DeAR"][1].close()
    dist.barrier()
    made.clear()
    dist.destroy_process_group()


def steps_of(way: str, steps: int) -> int:
    """The steps of a turn, which are fewer where one takes many times as long."""
    return max(1, steps // 5) if "buckets" in way else steps


def describe(way: str, everybody: list[Any]) -> dict[str, Any]:
    """Times of a step in one way, of the slowest rank, beside those of DDP on gloo in the same turn."""
    turns = range(len(everybody[0]))
    wall = {one: [max(rank[turn][one][0] for rank in everybody) for turn in turns] for one in WAYS}
    processor = [sum(rank[turn][way][1] for rank in everybody) for turn in turns]
    ratios = sorted(gloo / mine for gloo, mine in zip(wall[WAYS[0]], wall[way], strict=True))
    return {
        "ranks": len(everybody),
        "way": way,
        "step_us": round(1e6 * statistics.median(wall[way])),
        "step_us_range": [round(1e6 * min(wall[way])), round(1e6 * max(wall[way]))],
        "cpu_us": round(1e6 * statistics.median(processor)),
        "gloo_over_this": round(statistics.median(ratios), 2),
        "gloo_over_this_range": [round(ratios[0], 2), round(ratios[-1], 2)],
    }


def table() -> str:
    """The times in the result file, for docs/pytorch.md."""
    rows = result_files.read(RESULTS)["results"]
    counts = sorted({row["ranks"] for row in rows})
    lines = [
        "| a step | " + " | ".join(f"{count} ranks: ms | of CPU | DDP on gloo" for count in counts) + " |",
        "|---|" + "---|---|---|" * len(counts),
    ]
    for way in WAYS:
        cells = []
        for count in counts:
            (row,) = [row for row in rows if (row["ranks"], row["way"]) == (count, way)]
            times = f"{row['step_us'] / 1000:.1f} | {row['cpu_us'] / 1000:.1f}"
            cells.append(f"{times} | {row['gloo_over_this']:.2f}x")
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def run(ranks: int, rounds: int, steps: int, folder: Path) -> list[dict[str, Any]]:
    """One job of so many ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    job["OMP_NUM_THREADS"] = "1"
    output = folder / f"{ranks}.json"
    words = ["--rounds", str(rounds), "--steps", str(steps), "--output", str(output)]
    processes = [
        subprocess.Popen([sys.executable, __file__, *words], env={**os.environ, **job, "RANK": str(rank)})
        for rank in range(ranks)
    ]
    try:
        codes = [process.wait(_LONGEST_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"a job of {ranks} ranks has failed")
    found: list[dict[str, Any]] = json.loads(output.read_text("utf-8"))
    return found


def main() -> None:
    """Start one job after the other, or be a rank of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    if "RANK" in os.environ:
        measure(given.rounds, given.steps, given.output)
        return
    started = result_files.start()
    with tempfile.TemporaryDirectory() as folder:
        results = [
            row for ranks in given.ranks for row in run(ranks, given.rounds, given.steps, Path(folder))
        ]
    parameters = {"layers": LAYERS, "width": WIDTH, "rounds": given.rounds, "steps": given.steps}
    result_files.write(given.output, started, parameters=parameters, results=results)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
