"""Steps and simulated time of MultiTree as its authors grow it and as Weft does, beside the bounds.

Times are of an all-reduce, with the best of `weft.plan`'s segment sizes.

    python benchmarks/multitree/steps.py        # into steps.json beside this file
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import weft
from weft import units
from weft.algorithms import multitree
from weft.algorithms.multitree.growth import fewest_steps
from weft.algorithms.multitree.link_speeds import use_all
from weft.bounds.collective_bound import lower_bound
from weft.simulation import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

SPECS: Final = (
    "torus:4x4",
    "torus:8x8",
    "torus:16x16",
    "torus:4x4x4",
    "hypercube:6",
    "mesh:4x4",
    "mesh:8x8",
    "torus:8x8+fail=0-1",
    "fattree:64",
    "fattree:8,4,8",
    "bigraph:4,8",
    "bigraph:8,8",
    "dragonfly:5,4,2",
    "dgx-h100:4@fabric=flat",
    "hosts:8,4,2",
    "hosts:8,8,8,1",
)
SIZES: Final = ("16KiB", "1MiB", "64MiB", "1GiB")


def measure(spec: str) -> dict[str, Any]:
    """Steps of one half, and microseconds of both."""
    topology = weft.load_topology(spec)
    schedules = {
        "authors": multitree.all_reduce(topology, paper_order=True),
        "weft": multitree.all_reduce(topology),
    }
    times = []
    for size in SIZES:
        size_bytes = units.parse_size(size)
        bound = lower_bound(topology, "all_reduce", size_bytes).seconds
        seconds = {
            name: simulate(schedule, size_bytes, max_work=None).seconds
            for name, schedule in schedules.items()
        }
        times.append(
            {"size": size}
            | {f"{name}_us": round(value * 1e6, 3) for name, value in seconds.items()}
            | {"authors_over_weft": round(seconds["authors"] / seconds["weft"], 3)}
            | {"fraction_of_bound": round(bound / seconds["weft"], 4)}
        )
    return {
        "topology": spec,
        "way": schedules["weft"].notes[0],
        "fewest_steps": fewest_steps(use_all(topology)),
        "steps": {name: schedule.steps // 2 for name, schedule in schedules.items()},
        "times": times,
    }


def main() -> None:
    """Measure and print."""
    started, results = result_files.start(), []
    for spec in SPECS:
        results.append(measure(spec))
        steps = results[-1]["steps"]
        gains = [time["authors_over_weft"] for time in results[-1]["times"]]
        print(
            f"{spec:20} steps {steps['authors']:3} {steps['weft']:3}, at least "
            f"{results[-1]['fewest_steps']:3}; authors/weft {gains}"
        )
    parameters = {"sizes": SIZES}
    result_files.write(Path(__file__).with_suffix(".json"), started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
