"""What ``weft compare`` costs, start-up included: every all-reduce on an 8x8 torus.

Run it with ``.venv/bin/python benchmarks/compare/torus.py``; it writes torus.json beside itself.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provenance import write_json

COMMAND = ["compare", "torus:8x8@bw=16GB/s,lat=150ns", "--size", "64MiB", "--json"]
REPETITIONS = 5


def children_cpu_s() -> float:
    """CPU seconds of all finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Repeat the command, keep its last answer and the spread of its cost."""
    cpu_s: list[float] = []
    answer = ""
    for _ in range(REPETITIONS):
        before = children_cpu_s()
        answer = subprocess.run(
            [sys.executable, "-m", "weft", *COMMAND], check=True, capture_output=True, text=True, timeout=120
        ).stdout
        cpu_s.append(children_cpu_s() - before)
    comparison = json.loads(answer)
    result = {
        "command": f"weft {' '.join(COMMAND)}",
        "cpu_seconds": {"median": statistics.median(cpu_s), "min": min(cpu_s), "max": max(cpu_s)},
        "all_verified": all(row["verified"] for row in comparison["results"]),
        "comparison": comparison,
    }
    write_json(Path(__file__).with_suffix(".json"), result)
    print(json.dumps({key: result[key] for key in ("command", "cpu_seconds", "all_verified")}, indent=1))


if __name__ == "__main__":
    main()
