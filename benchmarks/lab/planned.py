"""Planned schedules beside their predictions, on the wire: every algorithm that fits, on five fabrics.

Each algorithm runs with the variant and the segments that `weft.plan` chooses for it. The entrants of a
fabric run in batches of four jobs at most, since many jobs that are alive at once disturb each other; the
first one, which is the plan of the fabric, is in every batch, so that a machine that changes is seen.
Schedules of other libraries are left out; `gallery.py` measures some of the libraries themselves.

It needs root, iproute2 and a machine that does nothing else. It says at the start how long it will take, and
with every batch how long is left. Rounds are as many as fit well into ``--minutes``, 3 at least; no batch is
begun that would end after them. What was measured until it was stopped or its minutes were over is written,
and the exit code is then 1. It is 1 as well if an element of a result was wrong.

    python benchmarks/lab/planned.py                  # all fabrics; 12 minutes on 2 cores, 14 at most
    python benchmarks/lab/planned.py --minutes 25     # more rounds
    python benchmarks/lab/planned.py --only mesh      # one of them, printed and not kept; may be repeated
    python benchmarks/lab/planned.py --quick          # a round of few, small: does everything run?
    python benchmarks/lab/planned.py --table          # what is there already, for docs/lab.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import lab
from weft.errors import UnsupportedError
from weft.lab.contest import Entrant, EntrantResult, hold
from weft.lab.expected_time import emulated, predict
from weft.planning import Plan, compare
from weft.planning.planner import plan
from weft.topology import Topology, load_topology

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files
from bounded_run import BoundedRun

FILE = Path(__file__).with_suffix(".json")
SIZE_BYTES = 2_000_000
FABRICS = {
    "torus": "torus:2x4@bw=20Mbit/s",
    "mesh": "mesh:4x4@bw=10Mbit/s",
    "uneven hosts": "hosts:4,2,1@uplink=80Mbit/s/40Mbit/s/20Mbit/s",
    "fat-tree": "fattree:2,2,4@bw=30Mbit/s,uplink=30Mbit/s",
    "bigraph": "bigraph:2,4@bw=30Mbit/s",
}
WITHIN = 0.1
MINUTES = 14.0
FEWEST, MOST = 3, 9
"""Rounds."""

RESERVE = 0.85
"""Share of the time that is left which rounds are chosen to fill: estimates are no promises."""

CHECKS = 2
"""Operations of each entrant beside its rounds: its result is checked before and after them."""

OTHERS = 3
"""Entrants of a batch beside the first one."""

START_S, BUILD_S = 0.2, 2.0
"""What it takes to start and end one rank, and to build and remove one fabric: for estimates only."""

QUICK_BYTES, QUICK_ENTRANTS = 100_000, 3


@dataclass(frozen=True)
class Planned:
    """One algorithm on one fabric: its plan, and what that should take."""

    algorithm: str
    plan: Plan
    segment_bytes: int | None
    predicted_s: float


@dataclass(frozen=True)
class Fabric:
    """One emulated cluster with its entrants; the first is what is planned for it."""

    name: str
    topology: Topology
    entrants: list[Planned]

    @property
    def batches(self) -> list[list[Planned]]:
        """The first one with up to `OTHERS` others, as even as can be."""
        first, *others = self.entrants
        count = max(1, -(-len(others) // OTHERS))
        return [[first, *others[index::count]] for index in range(count)]

    def batch_s(self, batch: list[Planned], rounds: int) -> float:
        """Seconds that a batch should take."""
        start = len(batch) * self.topology.ranks * START_S
        return start + (rounds + CHECKS) * sum(one.predicted_s for one in batch)

    def seconds(self, rounds: int) -> float:
        """Seconds that all its batches should take."""
        return BUILD_S + sum(self.batch_s(batch, rounds) for batch in self.batches)


def prepare(name: str, size_bytes: int, most: int | None = None) -> Fabric:
    """Plan with every algorithm that fits, but for those of libraries; `most` leaves out the slowest."""
    topology = load_topology(FABRICS[name])
    view = emulated(topology)
    entrants = []
    for row in compare(view, size_bytes).results:
        if row.library is not None or not row.verified:
            continue
        try:
            made = plan(view, size_bytes, algorithms=row.algorithm)
        except UnsupportedError as refusal:
            print(f"{name}: {row.algorithm}: {refusal}", file=sys.stderr)
            continue
        choice = made.choose(size_bytes)
        segment_bytes = choice.segment_bytes
        seconds = predict(choice.schedule, size_bytes, topology, segment_bytes=segment_bytes)
        entrants.append(Planned(row.algorithm, made, segment_bytes, seconds))
    entrants.sort(key=lambda one: one.predicted_s)
    return Fabric(name, topology, entrants[:most])


def choose_rounds(fabrics: list[Fabric], left_s: float) -> int:
    """As many rounds as fit into the seconds that are left."""
    once, twice = (sum(one.seconds(rounds) for one in fabrics) for rounds in (1, 2))
    return int(min(max(1 + (RESERVE * left_s - once) // (twice - once), FEWEST), MOST))


def run(
    fabric: Fabric, size_bytes: int, rounds: int, clock: BoundedRun, later_s: float
) -> list[dict[str, Any]]:
    """Measure one fabric, batch after batch, until the clock says stop; a row for each entrant."""
    found: dict[str, list[tuple[EntrantResult, float]]] = {}
    batches = fabric.batches
    with clock.stoppable(), lab.build(fabric.topology, scale=1.0) as network:
        for index, batch in enumerate(batches):
            to_go = [fabric.batch_s(one, rounds) for one in batches[index:]]
            if clock.is_over(to_go[0]):
                break
            who = ", ".join(one.algorithm for one in batch)
            clock.tell(f"{fabric.name}, batch {index + 1} of {len(batches)}: {who}", sum(to_go) + later_s)
            entrants = [
                Entrant(f"weft {one.algorithm}" if place else "weft", plan=one.plan)
                for place, one in enumerate(batch)
            ]
            outcomes = hold(network, entrants, size_bytes, rounds=rounds, timeout=300)
            for one, outcome in zip(batch, outcomes, strict=True):
                found.setdefault(one.algorithm, []).append((outcome, outcomes[0].median_seconds))
    return [describe(fabric, one, found[one.algorithm]) for one in fabric.entrants if one.algorithm in found]


def describe(fabric: Fabric, one: Planned, held: list[tuple[EntrantResult, float]]) -> dict[str, Any]:
    """One row: all rounds of one entrant, from one batch, or for the first one from all of them."""
    seconds = [second for outcome, _ in held for second in outcome.seconds]
    median = statistics.median(seconds)
    return {
        "fabric": fabric.name,
        "name": one.algorithm,
        "digest": held[0][0].digest,
        "segment_bytes": one.segment_bytes,
        "predicted_seconds": one.predicted_s,
        "median_seconds": median,
        "deviation": median / one.predicted_s - 1,
        "first_median_seconds": [first for _, first in held],
        "wrong": sum(outcome.wrong for outcome, _ in held),
        "seconds": seconds,
        "cpu_seconds": [second for outcome, _ in held for second in outcome.cpu_seconds],
    }


def table() -> str:
    """Everything that is stored, for docs/lab.md."""
    return format_table(result_files.read(FILE)["results"])


def format_table(rows: list[dict[str, Any]]) -> str:
    """Rows for people."""
    lines = [
        "| fabric | algorithm | segment | predicted s | median s | fastest to slowest | off |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (list(FABRICS).index(row["fabric"]), row["median_seconds"])):
        cells = [
            f"`{FABRICS[row['fabric']]}`",
            row["name"],
            "whole" if row["segment_bytes"] is None else f"{row['segment_bytes']:,} B",
            f"{row['predicted_seconds']:.3f}",
            f"{row['median_seconds']:.3f}",
            f"{min(row['seconds']):.3f} to {max(row['seconds']):.3f}",
            f"{100 * row['deviation']:+.1f} %",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Do what the command line says; 1 if it is not complete or something was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(FABRICS))
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"{MINUTES:g} by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="the result file; by default the one beside this script")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(), end="")
        return 0
    started, clock = result_files.start(), BoundedRun(given.minutes)
    size_bytes, most = (QUICK_BYTES, QUICK_ENTRANTS) if given.quick else (SIZE_BYTES, None)
    names = given.only or (["torus"] if given.quick else list(FABRICS))
    clock.tell(f"planning for {', '.join(names)}", 60 * given.minutes)
    fabrics = [prepare(name, size_bytes, most) for name in names]
    rounds = 1 if given.quick else choose_rounds(fabrics, clock.left_s)
    rows: list[dict[str, Any]] = []
    for index, fabric in enumerate(fabrics):
        later_s = sum(one.seconds(rounds) for one in fabrics[index + 1 :])
        found = run(fabric, size_bytes, rounds, clock, later_s)
        rows += found
        print(format_table(found), flush=True)
        if clock.stopped:
            break
    near = sum(abs(row["deviation"]) <= WITHIN for row in rows)
    wrong = sum(row["wrong"] for row in rows)
    output = given.out or (FILE if given.only is None and not given.quick else None)
    if output is not None and rows:
        parameters = {
            "size_bytes": size_bytes,
            "rounds": rounds,
            "minutes": given.minutes,
            "fabrics": {name: FABRICS[name] for name in names},
            "stopped": clock.stopped,
        }
        summary = {"rows": len(rows), "within_10_percent": near, "wrong": wrong}
        result_files.write(output, started, parameters=parameters, summary=summary, results=rows)
    print(f"{near} of {len(rows)} within {100 * WITHIN:.0f} %, {wrong} wrong elements")
    return 1 if wrong or clock.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
