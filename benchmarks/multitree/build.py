"""What MultiTree costs to build and to verify: CPU seconds, median of several repetitions.

Every case runs in a process of its own, after everything is imported.

    python benchmarks/multitree/build.py        # into build.json beside this file
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

CASES: Final = (
    ("torus:8x8", False),
    ("torus:16x16", False),
    ("torus:32x32", False),
    ("torus:16x16", True),
    ("torus:32x32", True),
    ("mesh:16x16", False),
    ("mesh:32x32", False),
    ("torus:32x32+fail=0-1", False),
    ("torus:10x10x10", False),
    ("hypercube:10", False),
    ("fattree:256", False),
    ("bigraph:8,32", False),
    ("dragonfly:9,8,4", False),
    ("dgx-h100:32@fabric=flat", False),
    ("hosts:64,32,16,128", False),
)
"""Topology, and whether in the authors' order."""

RESULTS: Final = Path(__file__).with_suffix(".json")


def measure(spec: str, paper_order: bool, repeat: int) -> dict[str, Any]:
    """CPU seconds of one case."""
    import weft
    from weft.algorithms import multitree

    verify = weft.verify
    topology = weft.load_topology(spec)
    seconds: dict[str, list[float]] = {"build": [], "verify": []}
    for _ in range(repeat):
        began = time.process_time()
        schedule = multitree.all_reduce(topology, paper_order=paper_order)
        built = time.process_time()
        verify(schedule)
        seconds["build"].append(built - began)
        seconds["verify"].append(time.process_time() - built)
    return {
        "topology": spec,
        "paper_order": paper_order,
        "ranks": topology.ranks,
        "steps": schedule.steps,
        "transfers": schedule.transfers,
        "way": schedule.notes[0],
        "cpu_seconds": {name: spread(values) for name, values in seconds.items()},
    }


def spread(values: list[float]) -> dict[str, float]:
    """Median and extremes, to the millisecond."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def table() -> str:
    """The stored CPU seconds, for docs/multitree.md."""
    lines = ["| | ranks | transfers | build | verify |", "|---|---|---|---|---|"]
    for row in result_files.read(RESULTS)["results"]:
        name = f"`{row['topology']}`" + (", paper_order" if row["paper_order"] else "")
        cpu = row["cpu_seconds"]
        times = f"{cpu['build']['median']:.2f} | {cpu['verify']['median']:.2f}"
        lines.append(f"| {name} | {row['ranks']} | {row['transfers']:,} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all cases, or one of them as a child."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--paper-order", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.paper_order, options.repeat)))
        return
    started, results = result_files.start(), []
    for spec, paper_order in CASES:
        command = [sys.executable, __file__, "--repeat", str(options.repeat), "--case", spec]
        command += ["--paper-order"] if paper_order else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{spec}: {done.stderr.strip().splitlines()[-1]}")
        results.append(json.loads(done.stdout))
        cpu = results[-1]["cpu_seconds"]
        print(f"{spec:22} build {cpu['build']['median']:7.3f} s, verify {cpu['verify']['median']:7.3f} s")
    result_files.write(options.output, started, parameters={"repetitions": options.repeat}, results=results)


if __name__ == "__main__":
    main()
