"""How long until every rank of a job knows who was lost, and what a lost rank leaves behind.

Each job does nothing but all-reduce, and one of its ranks is killed or frozen at a random moment. Measured is
the time from the signal until the last of the other ranks has raised `weft.PeerLost`; counted is who named
another rank, and what was there after the job: processes, shared memory, files.

    python benchmarks/runtime/failures.py       # into failures.json beside this file; as root, for the hosts
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.hosts import make_network  # noqa: E402
from support.jobs import start_ranks  # noqa: E402
from support.losses import Outcome, Start, lose  # noqa: E402

RANKS, HOSTS = 8, 4
ALGORITHMS = ("ring", "direct")
ELEMENTS = (1000, 300_000, 3_000_000)


@contextmanager
def starter(how: str, chance: random.Random) -> Iterator[Start]:
    """What starts jobs of one kind, each with an algorithm and a size by chance."""

    def words() -> tuple[str, str, str]:
        transport = "tcp" if how == "tcp" else "auto"
        return transport, chance.choice(ALGORITHMS), str(chance.choice(ELEMENTS))

    if how == "hosts":
        with make_network(HOSTS) as network:
            yield lambda folder, source, variables: network.start(
                folder, RANKS // HOSTS, source, *words(), variables=variables
            )
    else:
        yield lambda folder, source, variables: start_ranks(
            folder, RANKS, source, *words(), variables=variables
        )


def measure(how: str, sign: signal.Signals, rounds: int, chance: random.Random) -> list[Outcome]:
    """Lose each rank equally often."""
    found: list[Outcome] = []
    with starter(how, chance) as start:
        for number in range(rounds):
            found.append(lose(start, number % RANKS, sign, chance))
            print(how, sign.name, number, found[-1], file=sys.stderr)
    return found


def summary(how: str, sign: signal.Signals, found: list[Outcome]) -> dict[str, Any]:
    """What is worth keeping."""
    seconds = sorted(one.seconds for one in found)
    return {
        "transport": how,
        "signal": sign.name,
        "jobs": len(found),
        "ranks": RANKS,
        "named_wrongly": sum(len(one.wrong) for one in found),
        "left_behind": sum(len(one.left) for one in found),
        "seconds": {
            "median": round(statistics.median(seconds), 3),
            "p99": round(seconds[max(0, -(-99 * len(seconds) // 100) - 1)], 3),
            "max": round(seconds[-1], 3),
        },
    }


def write(path: Path, results: list[dict[str, Any]]) -> None:
    """Write the report."""
    report = {"cores": os.cpu_count(), "hosts": HOSTS, "results": results}
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def main() -> None:
    """Measure everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=34, help="for each transport")
    parser.add_argument("--freezes", type=int, default=6, help="for each transport")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    wanted = parser.parse_args()
    chance = random.Random(1)
    results = [
        summary(how, sign, measure(how, sign, rounds, chance))
        for sign, rounds in ((signal.SIGKILL, wanted.kills), (signal.SIGSTOP, wanted.freezes))
        for how in ("memory", "tcp", "hosts")
    ]
    write(wanted.output, results)


if __name__ == "__main__":
    main()
