"""What it costs to simulate ResNet-50 on 64 accelerators with every transfer of every layer contending.

Two iterations on ace:4x4x4 in chunks of 64 KiB, for each endpoint of the ACE paper; and, for comparison with
simulators of single collectives, one all-reduce of 64 MiB in 1024 chunks. CPU seconds include everything from
layers to times; the median of three runs each. Beside them the iteration that the times of all-reduces alone
predict.

    python benchmarks/training/contention.py        # into results/contention.json beside this file
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.papers.ace.bandwidth import all_reduce, drive
from weft.papers.ace.computing import WAYS
from weft.papers.ace.iterations import NAMES, contended, point, rates
from weft.training.endpoints import ENDPOINTS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SHAPE = "4x4x4"
REPEATS = 3
(ROOFLINE,) = (way for way in WAYS if way.way == "roofline")
LARGE = 64 << 20


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a call gives, and its CPU seconds."""
    times, found = [], None
    for _ in range(REPEATS):
        began = time.process_time()
        found = call()
        times.append(round(time.process_time() - began, 2))
    return found, {"cpu_seconds": statistics.median(times), "cpu_seconds_each": times}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).parent / "results" / "contention.json"
    parser.add_argument("--output", type=Path, default=here)
    output = parser.parse_args().output
    started = result_files.start()
    all_reduce(SHAPE)  # built once and kept: not part of what is measured
    predicted = point(ROOFLINE, "resnet50", SHAPE, rates(SHAPE, 16 << 20))
    rows = []
    for name in NAMES:
        (seconds, _), cost = timed(lambda name=name: contended(ROOFLINE, "resnet50", SHAPE, [name]))
        iteration = {"iteration_ms": 1e3 * seconds[name], "predicted_ms": 1e3 * predicted.seconds[name]}
        rows.append({"kind": "resnet50, two iterations", "endpoint": name, **cost, **iteration})
        print(f"{name:12} {cost['cpu_seconds']:6.2f} CPU s  {1e3 * seconds[name]:.3f} ms", flush=True)
    for name in NAMES:
        found, cost = timed(lambda name=name: drive(SHAPE, ENDPOINTS[name], LARGE))
        case = {"kind": "all_reduce of 64 MiB", "endpoint": name}
        rows.append({**case, **cost, "simulated_us": 1e6 * found.seconds})
        print(f"{name:12} {cost['cpu_seconds']:6.2f} CPU s  64 MiB alone", flush=True)
    parameters = {
        "topology": f"ace:{SHAPE}",
        "chunk_bytes": ENDPOINTS["ace"].chunk_bytes,
        "repeats": REPEATS,
    }
    result_files.write(output, started, parameters=parameters, results=rows)


if __name__ == "__main__":
    main()
