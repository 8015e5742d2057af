"""Plans on a zoo of networks: never slower than any single algorithm, and how near to the proven bound.

Each network is planned for 4 KiB to 1 GiB. Then, at sizes *between* those the plan was made at, every
algorithm of the registry and each of its variants is simulated by itself, with every segment size that ``weft
compare`` tries, and the plan is held against the best of them. At 1 GiB it is held against the bound.

    python benchmarks/planning/zoo.py                   # all networks, into zoo.json beside this file
    python benchmarks/planning/zoo.py torus:8x8 ring:8  # some, printed only

``WEFT_UPDATE_GOLDEN=1 python -m pytest tests/unit/test_doc_figures.py`` writes it into docs/planning.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.planning import Plan, plan
from weft.planning.candidates import Candidate, build, list_recipes
from weft.simulation import simulate
from weft.simulation.segment_sizes import segment_candidates
from weft.topology import Topology, load_topology

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "topology"
RESULTS = Path(__file__).with_suffix(".json")

ZOO = (
    "ring:8",
    "ring:16",
    "ring:8+fail=3>4",
    "mesh:4x4",
    "mesh:8x8",
    "mesh:3x5",
    "mesh:3x3x3",
    "torus:2x4",
    "torus:4x4",
    "torus:4x8",
    "torus:5x5",
    "torus:8x8",
    "torus:4x4x4",
    "torus:2x4x4@wrap2=double",
    "torus:4x4+fail=0-1",
    "torus:8x8+fail=0-1",
    "torus:8x8+fail=0-1,9-10,27>28",
    "torus:4x4+fail=rank:5",
    "hypercube:4",
    "hypercube:6",
    "fullmesh:8",
    "switch:8",
    "switch:12",
    "fattree:16",
    "fattree:64",
    "fattree:4,2,4",
    "fattree:16+fail=s0-s4",
    "bigraph:2,4",
    "bigraph:4,8",
    "bigraph:4,8+fail=s0-s5",
    "dragonfly:4,4,2",
    "dragonfly:5,2,3",
    "dgx-a100:1@lat=1us",
    "dgx-a100:2@fabric=flat",
    "dgx-h100:4@fabric=flat",
    "hosts:8,4",
    "hosts:8,4,2@intra=100GB/s,uplink=25GB/s/12GB/s/6GB/s",
    "hosts:4,3,1",
    "hosts:8,8,8,1@intra=200GB/s,uplink=25GB/s",
    "asymmetric.toml",
    "dgx1-v100.nccl.xml@speed=effective",
)

SMALLEST, LARGEST = 4 << 10, 1 << 30

ODD = tuple(round(SMALLEST * 4**k * factor) for k in range(9) for factor in (1.37, 2.71))
"""Sizes that are no powers of anything, and none of those that a plan is searched at."""

ROUND = tuple(SMALLEST * 4**k * 44 // 16 for k in range(0, 9, 2))
"""The same for sizes that all small numbers of ranks divide."""

BETWEEN = tuple(sorted((*ODD, *ROUND)))
ALLOWED = 1.02
CLOSE = 1.005
NEAR = 1 / 1.1
ENOUGH = 25 / 30


@dataclass(frozen=True)
class Rival:
    """A single algorithm, and times that it cannot beat however it is cut."""

    candidate: Candidate
    busy_per_byte: float
    latency_s: float

    def best(self, size_bytes: int, mine_s: float) -> float:
        """Shortest time at one size, whole and with every segment size that ``weft compare`` tries.

        Where its busiest link alone, or a byte's way around, takes nearly as long as the plan, the rival is
        taken to need no more than that, which no simulation beats.
        """
        least = max(self.busy_per_byte * size_bytes, 0.97 * self.latency_s)
        if mine_s <= CLOSE * least:
            return least
        schedule = self.candidate.schedule
        cuts, _ = segment_candidates(schedule, size_bytes)
        return min(simulate(schedule, size_bytes, segment_bytes=cut, max_work=None).seconds for cut in cuts)


def load(name: str) -> Topology:
    """A spec, a file beside this one, or one of the tests' files."""
    for folder in (Path(__file__).parent, DATA):
        if (folder / name).is_file():
            return load_topology(folder / name)
    return load_topology(name)


def list_rivals(topology: Topology) -> list[Rival]:
    """Every algorithm and variant that applies, each schedule once."""
    found: dict[str, Rival] = {}
    for recipe in list_recipes("all_reduce"):
        candidate = build(recipe, topology, "all_reduce", 0)
        if isinstance(candidate, Candidate) and candidate.schedule.digest not in found:
            whole = simulate(candidate.schedule, LARGEST, segment_bytes=None, max_work=None)
            busy = whole.utilisation(whole.busiest_link) * whole.seconds / LARGEST
            latency = simulate(
                candidate.schedule, max(candidate.schedule.chunks, 1), segment_bytes=None, max_work=None
            ).seconds
            found[candidate.schedule.digest] = Rival(candidate, 0.999 * busy, latency)
    return list(found.values())


def audit(topology: Topology, found: Plan) -> list[dict[str, Any]]:
    """The plan beside the best single algorithm, at each size between its own."""
    rivals = list_rivals(topology)
    rows = []
    for size in BETWEEN:
        choice = found.choose(size)
        mine = simulate(choice.schedule, size, segment_bytes=choice.segment_bytes, max_work=None).seconds
        times = {rival.candidate.label: rival.best(size, mine) for rival in rivals}
        label = min(times, key=times.__getitem__)
        best = times[label]
        rows.append(
            {
                "size_bytes": size,
                "plan": found.planned(size).label,
                "plan_seconds": mine,
                "best_single": label,
                "best_single_seconds": best,
                "ratio": mine / best,
            }
        )
    return rows


def measure(name: str) -> dict[str, Any]:
    """Everything about one network."""
    topology = load(name)
    began = time.process_time()
    found = plan(topology)
    planned = time.process_time()
    between = audit(topology, found)
    audited = time.process_time()
    spans = [
        {
            "first_bytes": span.first_bytes,
            "algorithm": found.schedules[span.schedule].label,
            "segment_share": span.segment_share,
        }
        for span in found.ranges
    ]
    return {
        "topology": name,
        "ranks": topology.ranks,
        "plan_cpu_seconds": round(planned - began, 2),
        "audit_cpu_seconds": round(audited - planned, 2),
        "simulations": found.simulations,
        "ranges": spans,
        "algorithm_1GiB": found.planned(LARGEST).label,
        "seconds_1GiB": found.seconds,
        "bound_seconds_1GiB": found.bound_seconds,
        "bound_kind_1GiB": found.headline.bound_kind,
        "fraction_of_bound_1GiB": found.fraction_of_bound,
        "worst_ratio": max(row["ratio"] for row in between),
        "between": between,
    }


def table() -> str:
    """The stored results, for docs/planning.md."""
    found = result_files.read(RESULTS)
    lines = ["| network | ranks | at 1 GiB | % of bound | worst between sizes |", "|---|---|---|---|---|"]
    for row in found["results"]:
        good, worst = 100 * row["fraction_of_bound_1GiB"], row["worst_ratio"]
        name, label = row["topology"], row["algorithm_1GiB"]
        lines.append(f"| `{name}` | {row['ranks']} | {label} | {good:.1f} | {worst:.3f} |")
    near, topologies = found["summary"]["within_10_percent"], found["summary"]["topologies"]
    lines.append(f"\nWithin 10 % of the bound at 1 GiB: {near} of {topologies}.")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all or some networks and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topologies", nargs="*", help="specs or files; all of the zoo by default")
    asked = parser.parse_args().topologies
    names = asked or ZOO
    started, results = result_files.start(), []
    for number, name in enumerate(names, 1):
        row = measure(name)
        results.append(row)
        worst = max(row["between"], key=lambda between: between["ratio"])
        print(
            f"{number:2}/{len(names)} {name:53} {100 * row['fraction_of_bound_1GiB']:5.1f} % "
            f"{row['algorithm_1GiB']:30} {row['plan_cpu_seconds']:6.2f} + {row['audit_cpu_seconds']:6.2f} s  "
            f"worst {worst['ratio']:.4f} ({worst['plan']} against {worst['best_single']} "
            f"at {worst['size_bytes']})",
            flush=True,
        )
    near = sum(row["fraction_of_bound_1GiB"] >= NEAR for row in results)
    slowest = max(row["worst_ratio"] for row in results)
    print(
        f"{near} of {len(results)} within 10 % of the bound at 1 GiB; worst between sizes {slowest:.4f}; "
        f"{time.process_time():.0f} CPU s"
    )
    if not asked:
        result_files.write(
            RESULTS,
            started,
            parameters={"sizes_between_bytes": BETWEEN},
            summary={"topologies": len(results), "within_10_percent": near, "worst_ratio": slowest},
            results=results,
        )
    return 0 if slowest <= ALLOWED and near >= ENOUGH * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
