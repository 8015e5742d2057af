"""One slow cable: MultiTree beside the same network with that cable cut, and beside the paper's way.

Times are of an all-gather in the simulator, whole messages, in ratios to the cut network.

    python benchmarks/multitree/slow_cable.py        # into slow_cable.json beside this file
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import weft
from weft.algorithms import multitree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

CASES: Final = (
    ("torus:8x8", "0-1"),
    ("torus:4x4x4", "0-1"),
    ("mesh:8x8", "27-28"),
    ("hypercube:6", "0-1"),
    ("fattree:16", "s0-s4"),
    ("bigraph:4,8", "s0-s4"),
)
PERCENT: Final = (4, 10, 25, 50, 75, 90)
SIZE: Final = "64MiB"
SHOWN: Final = (4, 25, 50, 75, 90)
RESULTS: Final = Path(__file__).with_suffix(".json")


def slow_down(topology: weft.Topology, cable: str, percent: int) -> weft.Topology:
    """Give one cable, both ways, this part of its speed."""
    a, b = (topology.parse_node(node) for node in cable.split("-"))
    links = [*topology.links_between(a, b), *topology.links_between(b, a)]
    bandwidth = topology.bandwidth.copy()
    bandwidth[links] = bandwidth[links] * percent // 100
    return replace(topology, bandwidth=bandwidth)


def measure(spec: str, cable: str, percent: int) -> dict[str, Any]:
    """Milliseconds with the cable slow, in both orders, and with the cable cut."""
    topology = slow_down(weft.load_topology(spec), cable, percent)
    schedules = {
        "authors": multitree.all_gather(topology, paper_order=True),
        "weft": multitree.all_gather(topology),
        "cut": multitree.all_gather(weft.load_topology(f"{spec}+fail={cable}")),
    }
    for schedule in schedules.values():
        weft.verify(schedule)
    seconds = {
        name: weft.simulate(schedule, SIZE, segment_bytes=None).seconds
        for name, schedule in schedules.items()
    }
    return {
        "topology": spec,
        "cable": cable,
        "percent_of_speed": percent,
        "notes": schedules["weft"].notes,
        "milliseconds": {name: round(value * 1e3, 4) for name, value in seconds.items()},
        "authors_over_cut": round(seconds["authors"] / seconds["cut"], 3),
        "weft_over_cut": round(seconds["weft"] / seconds["cut"], 3),
    }


def table() -> str:
    """The stored ratios to the cut network, for docs/multitree.md."""
    lines = [
        "| | | " + " | ".join(f"{percent} %" for percent in SHOWN) + " |",
        "|---|---" + "|---" * len(SHOWN) + "|",
    ]
    results = result_files.read(RESULTS)["results"]
    for spec, _ in CASES:
        rows = {row["percent_of_speed"]: row for row in results if row["topology"] == spec}
        for who, key in (("paper", "authors_over_cut"), ("Weft", "weft_over_cut")):
            cells = [f"{rows[percent][key]:.2f}" for percent in SHOWN]
            lines.append(f"| `{spec}` | {who} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    started, results = result_files.start(), []
    for spec, cable in CASES:
        for percent in PERCENT:
            results.append(measure(spec, cable, percent))
            ratios = {name: results[-1][f"{name}_over_cut"] for name in ("authors", "weft")}
            print(f"{spec:12} {cable:6} {percent:3} %  to cut: {ratios}")
    parameters = {"size": SIZE, "collective": "all_gather"}
    result_files.write(RESULTS, started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
