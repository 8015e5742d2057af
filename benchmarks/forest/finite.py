"""Forests of finite size: slots, and simulated time beside the bound, equal shards and every other algorithm.

python benchmarks/forest/finite.py        # into finite.json beside this file
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.algorithms.forest.timetable import (
    Clock,
    busiest_ticks,
    make_schedule,
    make_timetable,
)
from weft.bounds.collective_bound import equal_shard_all_reduce_seconds
from weft.bounds.tree_columns import find_centres, grow_trees
from weft.planning.comparison import compare
from weft.topology import load_topology
from weft.units import parse_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SLOTS = (
    ("mesh:8x8", 64),
    ("mesh:8x8", 256),
    ("mesh:8x8", 1024),
    ("torus:8x8", 256),
    ("torus:8x8+fail=0-1", 1024),
    ("mesh:16x16", 1024),
)
SPECS = (
    "ring:8",
    "mesh:4x4",
    "mesh:8x8",
    "torus:4x8",
    "torus:8x8",
    "torus:8x8+fail=0-1",
    "torus:4x4+fail=0>1",
    "torus:4x4x4",
    "hypercube:5",
    "switch:8",
    "fattree:4,4,4",
    "bigraph:4,8",
    "dragonfly:4,4,2",
    "dgx-a100:4@fabric=flat",
    "dgx-h100:2@fabric=flat",
    "dgx-h100:2@fabric=flat+fail=0-s2",
    "hosts:8,4,2",
)
SIZES = ("1MiB", "32MiB", "1GiB")
RESULTS = Path(__file__).with_suffix(".json")
TACOS_SLOTS = {("mesh:8x8", 64): 64, ("mesh:8x8", 256): 252, ("torus:8x8", 256): 128}
"""Slots of the synthesiser TACOS for the same; quoted, not measured here."""


def measure_slots(spec: str, chunks: int) -> dict[str, Any]:
    """One chunk per link and slot; what arrives in one slot may leave in the next."""
    topology = load_topology(spec)
    began = time.process_time()
    trees, _ = grow_trees(topology, find_centres(topology, 2), (True, True), chunks)
    clock = Clock(np.ones(topology.links, np.int32), np.zeros(topology.links, np.int32))
    timetable = make_timetable(topology, trees, clock, passes=200 if topology.ranks <= 64 else 40)
    cpu = time.process_time() - began
    builder = weft.ScheduleBuilder(topology, "all_reduce", "forest", chunks=chunks)
    weft.verify(make_schedule(builder, timetable))
    return {
        "kind": "slots",
        "topology": spec,
        "chunks": chunks,
        "slots": timetable.ticks,
        "busiest_link": busiest_ticks(topology, timetable.trees, clock),
        "cpu_seconds": round(cpu, 2),
    }


def measure_time(spec: str, size: str) -> dict[str, Any]:
    """Forest and the best of the others, as fractions of the bound."""
    result = compare(spec, size)
    rows = {row.algorithm: row for row in result.results}
    ours = rows.pop("forest")
    best = min((row for row in rows.values() if row.seconds), key=lambda row: row.seconds or 0.0)
    shards = equal_shard_all_reduce_seconds(load_topology(spec), parse_size(size))
    assert ours.seconds is not None, "forests are correct"
    return {
        "kind": "time",
        "topology": spec,
        "size": size,
        "percent_of_bound": round(100 * (ours.fraction_of_bound or 0.0), 1),
        "times_equal_shard_optimum": round(shards / ours.seconds, 3),
        "best_other": best.algorithm,
        "best_other_percent_of_bound": round(100 * (best.fraction_of_bound or 0.0), 1),
        "bound_kind": result.bound.kind,
        "verified": ours.verified,
        "transfers": ours.transfers,
        "synthesis_cpu_seconds": round(ours.synthesis_seconds, 2),
    }


def slots_table() -> str:
    """The stored slots, for docs/forest.md."""
    lines = ["| network | chunks | slots | busiest link | TACOS |", "|---|---|---|---|---|"]
    for row in result_files.read(RESULTS)["results"]:
        if row["kind"] == "slots":
            spec, chunks = row["topology"], row["chunks"]
            other = TACOS_SLOTS.get((spec, chunks), "")
            lines.append(f"| `{spec}` | {chunks} | {row['slots']} | {row['busiest_link']} | {other} |")
    return "\n".join(lines) + "\n"


def times_table() -> str:
    """The stored times of the largest size, for docs/forest.md."""
    lines = ["| network | forest | best other |", "|---|---|---|"]
    for row in result_files.read(RESULTS)["results"]:
        if row["kind"] == "time" and row["size"] == SIZES[-1]:
            other = f"{row['best_other_percent_of_bound']:.1f} {row['best_other']}"
            lines.append(f"| `{row['topology']}` | {row['percent_of_bound']:.1f} | {other} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    started, rows = result_files.start(), []
    for spec, chunks in SLOTS:
        rows.append(measure_slots(spec, chunks))
        print(rows[-1], flush=True)
    for spec in SPECS:
        for size in SIZES:
            rows.append(measure_time(spec, size))
            print(rows[-1], flush=True)
    result_files.write(output, started, parameters={"sizes": SIZES}, results=rows)


if __name__ == "__main__":
    main()
