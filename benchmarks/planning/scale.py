"""What `weft compare` costs on a thousand ranks: CPU seconds and peak memory by algorithm and phase.

Each row is a process of its own, so that the peak memory is its own. The row ``compare`` of a cluster is the
whole command, without a time limit; the other rows are its parts, done as it does them: the bound, and for
each algorithm that applies building, verifying and simulating with all segment sizes that are worth a try.
Rows of kind ``before`` are those of an older file, with its commit.

    python benchmarks/planning/scale.py                          # into scale.json beside this file
    python benchmarks/planning/scale.py --before old.json        # the same, with an older file's rows kept
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

CLUSTERS: Final = ("torus:32x32", "dgx-h100:128", "fattree:32,32,32")
SIZE: Final = "64MiB"
COLLECTIVE: Final = "all_reduce"
LONGEST_S: Final = 600
"""Seconds that one process may take."""


def cpu_now() -> float:
    """CPU seconds of this process so far, user and system, all threads together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(spec: str, algorithm: str) -> dict[str, Any]:
    """CPU seconds of the phases of one algorithm on one cluster, as `weft.compare` goes through them."""
    from weft import units
    from weft.algorithms.registry import Refusal, find
    from weft.bounds.collective_bound import lower_bound
    from weft.planning.segment_shares import SEGMENT_TOLERANCE
    from weft.simulation.simulator import search_segments
    from weft.topology import load_topology
    from weft.verification import inspect

    topology, size_bytes, line = load_topology(spec), units.parse_size(SIZE), find(algorithm)
    clock = [cpu_now()]
    bound = lower_bound(topology, COLLECTIVE, size_bytes)
    clock.append(cpu_now())
    schedule = line.try_build(topology, COLLECTIVE, expected_bytes=size_bytes)
    if isinstance(schedule, Refusal):
        return {"refused": schedule.reason}
    clock.append(cpu_now())
    problem = inspect(schedule, max_work=line.max_work).problem
    assert problem is None, f"{algorithm} on {spec}: {problem}"
    clock.append(cpu_now())
    near_s = SEGMENT_TOLERANCE * bound.seconds
    found = search_segments(schedule, size_bytes, good_enough_s=near_s, tolerance=SEGMENT_TOLERANCE).result
    clock.append(cpu_now())
    phases = ("bound", "build", "verify", "simulate")
    return {
        "transfers": schedule.transfers,
        "cpu_seconds": dict(zip(phases, (b - a for a, b in pairwise(clock)), strict=True)),
        "time_ps": found.time_ps,
        "percent_of_bound": 100 * bound.seconds / found.seconds,
    }


def compare(spec: str) -> dict[str, Any]:
    """CPU seconds of the whole comparison."""
    import weft

    before = cpu_now()
    found = weft.compare(spec, SIZE, time_limit=None)
    best = found.best
    assert best is not None
    return {
        "algorithms": len(found.results),
        "best": best.label,
        "percent_of_bound": 100 * (best.fraction_of_bound or 0),
        "cpu_seconds": {"compare": cpu_now() - before},
    }


def run(spec: str, algorithm: str) -> dict[str, Any]:
    """Measure one row in a process of its own."""
    command = [sys.executable, __file__, "--row", spec, algorithm]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out)
        # wait4 gives the peak of this one child, not the largest so far.
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{algorithm} on {spec} failed")
        out.seek(0)
        row = json.loads(out.read())
    return {"cluster": spec, "algorithm": algorithm, **row, "peak_MiB": usage.ru_maxrss // 1024}


def main() -> None:
    """Measure every row and write the table."""
    from weft.algorithms.registry import ALGORITHMS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS)
    parser.add_argument("--algorithms", nargs="+", default=["compare", *ALGORITHMS])
    parser.add_argument("--before", type=Path, help="a result file whose rows are kept as those of before")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        spec, algorithm = given.row
        print(json.dumps(compare(spec) if algorithm == "compare" else measure(spec, algorithm)))
        return
    started, rows = result_files.start(), []
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
    for spec in given.clusters:
        for algorithm in given.algorithms:
            row = run(spec, algorithm)
            if "refused" in row:
                continue
            rows.append({"kind": "now", **row})
            phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in row["cpu_seconds"].items())
            print(
                f"{spec:18s} {algorithm:20s} {row['percent_of_bound']:5.1f} %  {phases}; "
                f"{row['peak_MiB']} MiB",
                flush=True,
            )
    if given.before:
        old = result_files.read(given.before)
        commit = old["provenance"]["commit"]
        rows += [
            {**row, "kind": "before", "commit": commit} for row in old["results"] if row["kind"] == "now"
        ]
    result_files.write(
        given.output, started, parameters={"size": SIZE, "collective": COLLECTIVE}, results=rows
    )


if __name__ == "__main__":
    main()
