"""Start-up of 4, 16 and 64 local ranks, from the launch to the end of the first all-reduce, beside Gloo's.

A job's ranks are started one after the other by this process, alike for all ways (`start_up_job.py`):

- ``weft``: ``import weft``, ``weft.init`` and an all-reduce of 1 KiB;
- ``gloo``: ``import torch``, ``init_process_group("gloo")`` and the same;
- ``weft in torch``: ``import torch``, then ``import weft.torch`` and ``init_process_group("weft")``.

The first two are compared from the launch on; the last two also from the moment when a rank has imported
torch, which takes most of the time. Seconds are those of the rank that took longest, processor seconds those
of all ranks together, with the start of Python. Ways take turns, and numbers of ranks do, the small ones more
often.

It says how long is left, and begins no job that would end after its minutes. What was measured until it was
stopped is written. 64 ranks that import torch take 10 to 16 GB of memory, and more than a minute on two
cores.

    python benchmarks/runtime/start_up.py                       # 6 minutes on 2 cores, 8 at most
    python benchmarks/runtime/start_up.py --minutes 20          # more rounds of the large jobs
    python benchmarks/runtime/start_up.py --quick --out FILE    # two rounds of 2 ranks: does everything run?
    python benchmarks/runtime/start_up.py --table               # what is there already
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from start_up_job import WAYS

from weft.errors import RuntimeFailure
from weft.runtime.bootstrap.meeting_point import reserve_port
from weft.runtime.launcher.launch import job_variables

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files
from bounded_run import BoundedRun

FILE = Path(__file__).with_suffix(".json")
JOB = Path(__file__).with_name("start_up_job.py")
ROUNDS = {4: 9, 16: 4, 64: 2}
"""Rounds of each number of ranks where there is time."""

MINUTES = 8.0
CPU_S = {"weft": 0.3, "gloo": 1.2, "weft in torch": 1.7}
"""Processor seconds of one rank, for estimates until there are measurements."""

LONGEST_S = 400.0
LOOPBACK = "127.0.0.1"


def start(way: str, ranks: int) -> dict[str, Any]:
    """Run one job, and return what its ranks told, as times since the launch.

    Raises
    ------
    RuntimeFailure
        If a rank fails or the job takes too long.
    """
    with ExitStack() as resources:
        # Outputs are files: nobody reads pipes while ranks are being started.
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="weft-start-")))
        holder, port = reserve_port(LOOPBACK)
        resources.enter_context(holder)
        store = resources.enter_context(socket.socket())
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind((LOOPBACK, 0))
        store_port = store.getsockname()[1]
        store.close()
        shared = {
            **job_variables(ranks, port),
            **{name: str(ranks) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(store_port),
            "GLOO_SOCKET_IFNAME": "lo",
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        }
        processes: list[subprocess.Popen[bytes]] = []
        resources.callback(_end, processes)
        launched = time.monotonic()
        for rank in range(ranks):
            own = dict.fromkeys(("RANK", "LOCAL_RANK", "WEFT_RANK", "WEFT_LOCAL_RANK"), str(rank))
            output = resources.enter_context((folder / str(rank)).open("wb"))
            command = [sys.executable, "-P", str(JOB), way]
            processes.append(
                subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=shared | own)
            )
        for rank, process in enumerate(processes):
            try:
                code = process.wait(max(0.1, LONGEST_S - (time.monotonic() - launched)))
            except subprocess.TimeoutExpired:
                code = -1
            if code:
                said = (folder / str(rank)).read_text("utf-8", "replace")[-2000:]
                raise RuntimeFailure(f"{way}, {ranks} ranks: rank {rank} ended with {code}: {said}")
        told = [json.loads((folder / str(rank)).read_text("utf-8").splitlines()[-1]) for rank in range(ranks)]
    return {
        "whole_s": max(one["ended"] for one in told) - launched,
        "after_import_s": max(one["ended"] - one["imported"] for one in told),
        "import_s": statistics.median(one["imported"] - one["began"] for one in told),
        "join_s": max(one["joined"] - one["imported"] for one in told),
        "first_all_reduce_s": max(one["ended"] - one["joined"] for one in told),
        "cpu_s": sum(one["cpu_s"] for one in told),
    }


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill what is left of a job."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def measure(rounds: dict[int, int], clock: BoundedRun) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Run jobs in turn, until there are enough rounds of each or no time is left for the next."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    turns = [
        (ranks, WAYS[(place + turn) % len(WAYS)])
        for turn in range(max(rounds.values()))
        for ranks in rounds
        for place in range(len(WAYS))
        if turn < rounds[ranks]
    ]
    with clock.stoppable():
        for index, (ranks, way) in enumerate(turns):
            left = [expected_s(one, found) for one in turns[index:]]
            if left[0] > clock.left_s:  # a smaller job may still fit
                continue
            clock.tell(f"{ranks} ranks, {way}", min(sum(left), max(0.0, clock.left_s)))
            found.setdefault((ranks, way), []).append(start(way, ranks))
        if len(turns) > sum(map(len, found.values())):
            clock.is_over(float("inf"))
    return found


def expected_s(turn: tuple[int, str], found: dict[tuple[int, str], list[dict[str, Any]]]) -> float:
    """Seconds that a job takes: as the last one like it, else by the nearest number of ranks or a guess."""
    ranks, way = turn
    if turn in found:
        return float(found[turn][-1]["whole_s"])
    known = [one for one in found if one[1] == way]
    if known:
        nearest = max(known)
        return float(found[nearest][-1]["whole_s"]) * ranks / nearest[0]
    return ranks * CPU_S[way] / len(os.sched_getaffinity(0))


def rows_of(found: dict[tuple[int, str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each number of ranks and way: medians, and all rounds."""
    return [
        {
            "ranks": ranks,
            "way": way,
            "median_whole_s": statistics.median(one["whole_s"] for one in jobs),
            "median_after_import_s": statistics.median(one["after_import_s"] for one in jobs),
            "median_cpu_s": statistics.median(one["cpu_s"] for one in jobs),
            "rounds": jobs,
        }
        for (ranks, way), jobs in sorted(found.items(), key=lambda one: (one[0][0], WAYS.index(one[0][1])))
    ]


def table(path: Path = FILE) -> str:
    """Medians and spread, and what they are beside Gloo's, for docs/runtime.md."""
    rows = {(row["ranks"], row["way"]): row for row in result_files.read(path)["results"]}
    lines = [
        "| ranks | way | rounds | whole s | from, to | gloo's | import s | after import s | gloo's | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (ranks, way), row in rows.items():
        gloo = rows.get((ranks, "gloo"))
        whole = [one["whole_s"] for one in row["rounds"]]
        imports = statistics.median(one["import_s"] for one in row["rounds"])
        cells = [
            *(str(ranks), way, str(len(whole)), f"{row['median_whole_s']:.2f}"),
            f"{min(whole):.2f}, {max(whole):.2f}",
            f"{gloo['median_whole_s'] / row['median_whole_s']:.2f}x" if gloo else "",
            *(f"{imports:.2f}", f"{row['median_after_import_s']:.2f}"),
            f"{gloo['median_after_import_s'] / row['median_after_import_s']:.2f}x" if gloo else "",
            f"{row['median_cpu_s']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Do what the command line says; 1 if it was stopped before there was a round of everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"{MINUTES:g} by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    if given.table:
        print(table(given.out), end="")
        return 0
    if given.quick and given.out == FILE:
        parser.error("--quick needs --out: its figures are nothing to keep")
    started, clock = result_files.start(), BoundedRun(given.minutes)
    rounds = {2: 2} if given.quick else ROUNDS
    found = measure(rounds, clock)
    parameters = {
        "rounds": {str(ranks): count for ranks, count in rounds.items()},
        "minutes": given.minutes,
        "stopped": clock.stopped,
    }
    if found:
        result_files.write(given.out, started, parameters=parameters, results=rows_of(found))
        print(table(given.out), end="")
    return 0 if len(found) == len(rounds) * len(WAYS) else 1


if __name__ == "__main__":
    sys.exit(main())
