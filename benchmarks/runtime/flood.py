"""What a flood of connections from unauthenticated peers costs a job, while it starts and while it runs.

A flood makes connections on loopback at a given rate, half of them silent, the others with garbage, truncated
hellos or a recorded hello. It is aimed at all listeners of a job, or at unrelated listeners that nobody
serves; the two take turns, so that the processor time which the flood itself takes is the same on both sides.

Start: rank 0 waits in the flood for a while before the other ranks come, and the last rank keeps the others
waiting for its connections, so that the listeners for data are flooded as well. Measured are the seconds from
the last rank's call of `weft.init` until every rank has done its first all-reduce. Run: the ranks do nothing
but all-reduce 1 MiB over TCP, while one listener of each stays open, in case that survivors of a loss have to
meet. Nobody serves these during a run: the kernel keeps a few connections for each and drops all other
requests, which the report counts apart. Measured are operations a second.

    python benchmarks/runtime/flood.py          # into flood.json beside this file; about three minutes
"""

from __future__ import annotations

import argparse
import json
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from weft.runtime.bootstrap.handshake import Hello
from weft.runtime.bootstrap.listener import let_idle, open_socket

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import result_files  # noqa: E402
from support.flooded import hear, start, tell, waiting_job  # noqa: E402
from support.floods import LOOPBACK, Flood, end_flood, flooding  # noqa: E402

RANKS = 4
HEAD_START_S = 1.5
HOLD_S = 0.5
OPERATIONS = 60
SIDES = ("none", "unrelated", "job")


def run(ranks: list[subprocess.Popen[str]]) -> float:
    """All-reduces a second."""
    for rank in ranks:
        tell(rank, str(OPERATIONS))
    return round(OPERATIONS / max(hear(rank)["seconds"] for rank in ranks), 2)


@contextmanager
def unrelated(folder: Path) -> Iterator[None]:
    """As a running job has them: an idle listener for each rank, and a port where nobody listens."""
    with ExitStack() as stack:
        for _ in range(RANKS):
            listening = stack.enter_context(open_socket(socket.AF_INET, (LOOPBACK, 0)))
            let_idle(listening)
            (folder / str(listening.getsockname()[1])).touch()
        with socket.create_server((LOOPBACK, 0)) as closed:
            (folder / str(closed.getsockname()[1])).touch()
        yield


@contextmanager
def flooded(side: str, flood: Flood, targets: dict[str, Path]) -> Iterator[dict[str, Any]]:
    """A flood aimed at one side, and afterwards what it did."""
    done: dict[str, Any] = {}
    if side == "none":
        yield done
        return
    with flooding(flood, targets[side]) as process:
        yield done
        done.update(end_flood(process))


def measure_starts(flood: Flood, secret: bytes, rounds: int, files: int) -> list[dict[str, Any]]:
    """Start jobs, each side in turn."""
    found = []
    for number in range(rounds):
        for side in SIDES:
            with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
                targets = {name: Path(place, name) for name in SIDES}
                for one in targets.values():
                    one.mkdir()
                stack.enter_context(unrelated(targets["unrelated"]))
                ranks = stack.enter_context(
                    waiting_job(RANKS, targets["job"], secret, hold_s=HOLD_S, files=files)
                )
                with flooded(side, flood, targets) as made:
                    started = start(ranks, partial(time.sleep, HEAD_START_S))
            found.append({"phase": "start", "round": number, "flood_at": side, **started, "flood": made})
            print(found[-1], file=sys.stderr)
    return found


def measure_runs(flood: Flood, secret: bytes, rounds: int) -> list[dict[str, Any]]:
    """Run one job beside one flood, which is aimed at each side in turn, in changing order."""
    found = []
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        targets = {name: Path(place, name) for name in (*SIDES, "aim")}
        for one in targets.values():
            one.mkdir()
        stack.enter_context(unrelated(targets["unrelated"]))
        ranks = stack.enter_context(waiting_job(RANKS, targets["job"], secret, hold_s=0.0, files=1024))
        start(ranks, partial(time.sleep, 0.0))
        run(ranks)
        process = stack.enter_context(flooding(flood, targets["aim"]))
        for number in range(rounds):
            for side in SIDES if number % 2 else SIDES[::-1]:
                aim(targets["aim"], targets[side])
                speed = run(ranks)
                row = {"phase": "run", "round": number, "flood_at": side, "operations_per_second": speed}
                found.append(row)
                print(row, file=sys.stderr)
        found.append({"phase": "run", "flood_at": "all", "flood": end_flood(process)})
        print(found[-1], file=sys.stderr)
    return found


def aim(folder: Path, side: Path) -> None:
    """Aim a flood at the ports of one side, and give it a moment."""
    for path in folder.iterdir():
        path.unlink()
    time.sleep(0.2)
    for path in side.iterdir():
        (folder / path.name).touch()
    time.sleep(0.3)


def summary(rows: list[dict[str, Any]], key: str) -> dict[str, float]:
    """Median of each side."""
    of_side = {side: [row[key] for row in rows if row["flood_at"] == side] for side in SIDES}
    return {side: round(statistics.median(values), 3) for side, values in of_side.items()}


def paired_ratios(runs: list[dict[str, Any]]) -> list[float]:
    """Quartiles over all rounds of the speed when the job is flooded to that when others are."""
    runs = [row for row in runs if "round" in row]
    speed = {(row["round"], row["flood_at"]): row["operations_per_second"] for row in runs}
    rounds = {row["round"] for row in runs}
    ratios = [speed[one, "job"] / speed[one, "unrelated"] for one in rounds]
    return [round(value, 3) for value in statistics.quantiles(ratios, n=4)]


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=2000, help="connections a second, half of them silent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=256, help="open files allowed to a rank that starts")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    wanted = parser.parse_args()
    secret = secrets.token_bytes(32)
    hello = Hello.make(1, RANKS, "test").sign(secret)
    flood = Flood(wanted.rate // 2, wanted.rate // 2, 600.0, hello)
    started = result_files.start()
    starts = measure_starts(flood, secret, wanted.rounds, wanted.files)
    runs = measure_runs(flood, secret, 3 * wanted.rounds)
    seconds = summary([row for row in starts if row["seconds"] is not None], "seconds")
    speeds = summary(runs, "operations_per_second")
    found = {
        "start": {
            "failed": sum(row["seconds"] is None for row in starts),
            "median_s": seconds,
            "worst_s": max(row["seconds"] or 0.0 for row in starts if row["flood_at"] == "job"),
        },
        "run": {"median_operations_per_s": speeds, "ratio_quartiles": paired_ratios(runs)},
    }
    parameters = {
        "ranks": RANKS,
        "connections_per_s": wanted.rate,
        "open_files": wanted.files,
        "hold_s": HOLD_S,
        "head_start_s": HEAD_START_S,
        "rounds": wanted.rounds,
    }
    result_files.write(wanted.output, started, parameters=parameters, summary=found, results=[*starts, *runs])
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
