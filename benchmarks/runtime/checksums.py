"""What the checksum of frames costs: an all-reduce over sockets with it and without, in turn, in one job.

Each rank opens two communicators, one with checksums and one without, and reduces on both in turn, round by
round, so that whatever else the machine does hits both alike. Reported are medians and quartiles of seconds,
of processor seconds of all ranks, and the ratio of the two, over loopback and between hosts of the lab.

    python benchmarks/runtime/checksums.py      # into checksums.json beside this file; as root, for the hosts
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import result_files  # noqa: E402
from support.hosts import make_network  # noqa: E402
from support.jobs import finish, start_ranks  # noqa: E402

JOB = """
import json, sys, time
import numpy as np
import weft

elements, rounds, repeats = map(int, sys.argv[1:])
ways = {name: weft.init(transport="tcp", checksums=name == "with") for name in ("with", "without")}
array = np.ones(elements, np.float32)
found = {name: [] for name in ways}
for _ in range(rounds + 1):  # the first one warms up
    for name, comm in ways.items():
        array[:] = 1
        comm.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            comm.all_reduce(array)
        spent = np.array([time.perf_counter() - wall, (time.process_time() - cpu) * comm.size])
        found[name].append((comm.all_reduce(spent, "avg") / repeats).tolist())
if comm.rank == 0:
    print(json.dumps({name: values[1:] for name, values in found.items()}))
"""


def measure(where: str, ranks: int, size: int, rounds: int) -> dict[str, Any]:
    """One job; its rounds and what is worth reading of them."""
    repeats = max(1, (64 << 20) // size // 4)
    words = (str(size // 4), str(rounds), str(repeats))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes: list[subprocess.Popen[str]]
        if where == "hosts":
            network = stack.enter_context(make_network(ranks))
            processes = network.start(folder, 1, JOB, *words)
        else:
            processes = start_ranks(folder, ranks, JOB, *words)
        ends = finish(processes, 400)
    if any(code for code, _ in ends):
        sys.exit(f"{where}, {ranks} ranks: {ends}")
    raw: dict[str, list[list[float]]] = json.loads(ends[0][1])
    case: dict[str, Any] = {"where": where, "ranks": ranks, "size_bytes": size}
    for column, name in enumerate(("seconds", "cpu_seconds")):
        for way, values in raw.items():
            low, middle, high = statistics.quantiles([one[column] for one in values], n=4)
            case[f"{name}_{way}"] = [round(low, 6), round(middle, 6), round(high, 6)]
        pairs = zip(raw["with"], raw["without"], strict=True)
        case[f"{name}_ratio"] = round(statistics.median(a[column] / b[column] for a, b in pairs), 4)
    return {**case, "raw_wall_and_cpu_seconds": raw}


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    wanted = parser.parse_args()
    started = result_files.start()
    cases = [
        measure(where, ranks, size, wanted.rounds)
        for where in ("loopback", "hosts")
        for ranks in (2, 4)
        for size in (1 << 20, 64 << 20)
    ]
    for case in cases:
        what = f"{case['where']}, {case['ranks']} ranks, {case['size_bytes'] >> 20} MiB"
        print(f"{what}: time x {case['seconds_ratio']}, processor x {case['cpu_seconds_ratio']}")
    parameters = {"rounds": wanted.rounds, "ratio": "with checksums / without"}
    result_files.write(wanted.output, started, parameters=parameters, results=cases)


if __name__ == "__main__":
    main()
