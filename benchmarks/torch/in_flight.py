"""A thousand small gathers and scatters in flight, on backend weft beside gloo.

The two groups are in the same processes and take turns. A turn starts a thousand operations and then waits
for all of them; it takes as long as its slowest rank, and every result is compared with what it must be.
Processor seconds are those of all ranks together.

    python benchmarks/torch/in_flight.py       # into results/in_flight.json beside this file
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks")]

import result_files  # noqa: E402

RESULTS = Path(__file__).with_name("results") / "in_flight.json"
OPERATIONS = 1000
ELEMENTS = 10
WARMING_UP = 2


def turn(dist: Any, torch: Any, group: Any, collective: str) -> tuple[float, float]:
    """Wall and processor seconds of this rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    at_root = rank == 0
    if collective == "gather":
        sources = [torch.full((ELEMENTS,), float(rank + number)) for number in range(OPERATIONS)]
        rooms = [[torch.zeros(ELEMENTS) for _ in range(ranks)] for _ in range(OPERATIONS if at_root else 0)]
    else:
        sources = [
            [torch.full((ELEMENTS,), float(other + number)) for other in range(ranks)]
            for number in range(OPERATIONS if at_root else 0)
        ]
        rooms = [torch.zeros(ELEMENTS) for _ in range(OPERATIONS)]
    dist.barrier()
    wall, processor = time.perf_counter(), time.process_time()
    if collective == "gather":
        works = [
            dist.gather(source, rooms[number] if at_root else None, dst=0, group=group, async_op=True)
            for number, source in enumerate(sources)
        ]
    else:
        works = [
            dist.scatter(room, sources[number] if at_root else None, src=0, group=group, async_op=True)
            for number, room in enumerate(rooms)
        ]
    for work in works:
        work.wait()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    for number, room in enumerate(rooms):
        parts = enumerate(room) if collective == "gather" else [(rank, room)]
        for other, part in parts:
            if part.tolist() != [float(other + number)] * ELEMENTS:
                msg = f"{collective} {number}: {part} from rank {other}"
                raise SystemExit(msg)
    return wall, processor


def measure(rounds: int) -> None:
    """One of the processes that measure."""
    import torch
    from torch import distributed as dist

    import weft.torch  # noqa: F401 - registers the backend

    started = result_files.start()
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "weft")}
    cases = []
    for collective in ("gather", "scatter"):
        for number in range(rounds + WARMING_UP):
            for name in list(groups) if number % 2 else list(reversed(groups)):
                mine = turn(dist, torch, groups[name], collective)
                everybody: list[Any] = [None] * dist.get_world_size()
                dist.all_gather_object(everybody, mine)
                if number >= WARMING_UP:
                    wall, processor = max(one[0] for one in everybody), sum(one[1] for one in everybody)
                    cases.append(
                        {
                            "collective": collective,
                            "backend": name,
                            "wall_s": round(wall, 4),
                            "cpu_s": round(processor, 4),
                        }
                    )
    if dist.get_rank() == 0:
        parameters = {
            "ranks": dist.get_world_size(),
            "operations": OPERATIONS,
            "elements": ELEMENTS,
            "rounds": rounds,
        }
        summary: dict[str, dict[str, Any]] = {"gather": {}, "scatter": {}}
        for collective in ("gather", "scatter"):
            for unit in ("wall_s", "cpu_s"):
                columns = [
                    [
                        case[unit]
                        for case in cases
                        if case["collective"] == collective and case["backend"] == name
                    ]
                    for name in groups
                ]
                ratios = sorted(gloo / weft for gloo, weft in zip(*columns, strict=True))
                summary[collective][f"gloo_over_weft_{unit.removesuffix('_s')}"] = {
                    "median": round(statistics.median(ratios), 2),
                    "range": [round(ratios[0], 2), round(ratios[-1], 2)],
                }
        print(summary)
        result_files.write(RESULTS, started, parameters=parameters, summary=summary, results=cases)
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    wanted = parser.parse_args()
    if "RANK" in os.environ:
        measure(wanted.rounds)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = {"WORLD_SIZE": str(wanted.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, __file__, "--rounds", str(wanted.rounds)]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **job, "OMP_NUM_THREADS": "1", "RANK": str(rank)})
        for rank in range(wanted.ranks)
    ]
    sys.exit(max(abs(process.wait(timeout=900)) for process in ranks))


if __name__ == "__main__":
    main()
