"""Who is named, and how soon, when a rank is lost while its job starts.

In each job one rank ends itself by SIGKILL or SIGSTOP in one phase of the start, from its first connection to
the last barrier (`tests/runtime/jobs/dying_start.py`). Counted are the survivors that did not name this rank,
with its process id where it had been admitted; measured is the time from its end until the last survivor had
raised its error. A rank that was killed before it was admitted, and one that is frozen, can only be named at
a deadline.

    python benchmarks/runtime/starts.py         # into starts.json beside this file; as root, for the hosts
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import result_files  # noqa: E402
from runtime.jobs.dying_start import PHASES  # noqa: E402
from support.hosts import Network, make_network  # noqa: E402
from support.jobs import start_ranks  # noqa: E402
from support.starts import UNKNOWN, Death, die  # noqa: E402

RANKS, HOSTS = 4, 2
PLACES = {"memory": "auto", "tcp": "tcp", "hosts": "auto"}
LATE_S = 1.0
FREEZES = ("admitted", "welcomed", "cards told", "attached", "lines", "last line", "connected", "barrier")


def lose_all(place: str, network: Network, sign: str, phases: tuple[str, ...]) -> list[dict[str, Any]]:
    """Lose each rank once in each phase."""

    def start(
        folder: Path, source: str, words: tuple[str, ...], variables: dict[str, str]
    ) -> list[subprocess.Popen[str]]:
        if place == "hosts":
            per_host = RANKS // HOSTS
            return network.start(folder, per_host, source, *words, variables=variables, stdin=subprocess.PIPE)
        return start_ranks(folder, RANKS, source, *words, variables=variables, stdin=subprocess.PIPE)

    found = []
    for phase in phases:
        for victim in range(RANKS):
            ending = die(start, Death(victim, phase, sign, PLACES[place]))
            if ending.died:  # within one host there are no connections for data to die at
                seconds = round(ending.seconds, 3)
                where = {"place": place, "signal": sign, "phase": phase, "victim": victim}
                row = {**where, "seconds": seconds, "wrong": ending.wrong}
                found.append(row)
                print(row, file=sys.stderr)
    return found


def summary(place: str, sign: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is worth a line."""
    known = [row for row in rows if sign == "SIGKILL" and row["phase"] not in UNKNOWN]
    seconds = [row["seconds"] for row in known or rows]
    return {
        "place": place,
        "signal": sign,
        "starts": len(rows),
        "survivors_that_named_another": sum(len(row["wrong"]) for row in rows),
        "late": sum(row["seconds"] > LATE_S for row in known),
        "median_s": round(statistics.median(seconds), 3),
        "worst_s": max(seconds),
    }


def main() -> None:
    """Lose ranks everywhere and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    wanted = parser.parse_args()
    started = result_files.start()
    rows: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    with make_network(HOSTS) as network:
        for sign, phases in (("SIGKILL", tuple(PHASES)), ("SIGSTOP", FREEZES)):
            for place in PLACES:
                lost = lose_all(place, network, sign, phases)
                rows.append(summary(place, sign, lost))
                cases += lost
    result_files.write(
        wanted.output,
        started,
        parameters={"ranks": RANKS, "hosts": HOSTS},
        summary={"by_place": rows},
        results=cases,
    )
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
