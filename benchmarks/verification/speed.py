"""What verifying costs: CPU seconds and memory on large schedules.

Each case runs in its own process, so that the peak memory is its own.

    python benchmarks/verification/speed.py        # into speed.json beside this file
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

CASES = (
    ("ring", "all_reduce", "ring:1024"),
    ("ring", "all_reduce", "ring:4096"),
    ("bidirectional_ring", "all_reduce", "ring:1024"),
    ("halving_doubling", "all_reduce", "hypercube:10"),
    ("recursive_doubling", "all_reduce", "hypercube:10"),
    ("swing", "all_reduce", "torus:32x32"),
    ("bucket", "all_reduce", "torus:32x32"),
    ("double_binary_tree", "all_reduce", "fattree:32,32,32"),
    ("hierarchical", "all_reduce", "fattree:32,32,32"),
    ("direct", "all_reduce", "fattree:32,32,32"),
    ("direct", "all_gather", "fattree:32,32,32"),
    ("direct", "all_to_all", "fattree:32,32,32"),
)


def resident(field: str) -> int:
    """MiB this process has in memory, now or at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1024


def measure(algorithm: str, collective: str, spec: str) -> dict[str, Any]:
    """CPU seconds of each part, for one schedule."""
    from weft.algorithms.registry import find
    from weft.topology import load_topology
    from weft.verification import find_deadlock, measure_contention, verify

    schedule = find(algorithm).build(load_topology(spec), collective)
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    # Linux forgets the high-water mark that making the schedule left.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    seconds = {}
    calls = {
        "verify": lambda: verify(schedule),
        "deadlock_one_slot": lambda: find_deadlock(schedule, 1),
        "deadlock_one_slot_fused": lambda: find_deadlock(schedule, 1, fused=True),
        "contention": lambda: measure_contention(schedule),
    }
    memory = {}
    for name, call in calls.items():
        began = time.process_time()
        call()
        seconds[name] = round(time.process_time() - began, 3)
        memory[name] = resident("VmHWM")
    return {
        "algorithm": algorithm,
        "collective": collective,
        "topology": spec,
        "transfers": schedule.transfers,
        "messages": schedule.messages,
        "cpu_seconds": seconds,
        "verify_ns_per_transfer": round(seconds["verify"] * 1e9 / schedule.transfers, 1),
        "verify_peak_MiB_above_the_schedule": memory["verify"] - before,
    }


def main() -> None:
    """Run all cases, or one of them as a child."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--case", nargs=3)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(*arguments.case)))
        return
    started, results = result_files.start(), []
    for case in CASES:
        done = subprocess.run(
            [sys.executable, __file__, "--case", *case], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(case)}: {done.stderr.splitlines()[-1]}")
        results.append(json.loads(done.stdout))
        print(done.stdout, end="")
    result_files.write(arguments.output, started, parameters={}, results=results)


if __name__ == "__main__":
    main()
