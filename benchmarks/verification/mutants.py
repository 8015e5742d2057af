"""The verifier against brute force on 10,000 spoilt schedules.

Every algorithm of the registry, on every topology below that it accepts, and the hand-made schedules of the
tests are first verified as they are; a right schedule that is refused ends the run. Then mutants are drawn: a
schedule, and one to three changes of it. For each, the verdict of `weft.verification.inspect` must equal that
of the brute-force oracle, and the rank and chunk it names must be wrong in the way it says.

    python benchmarks/verification/mutants.py                 # 10,000, into mutants.json beside this file
    python benchmarks/verification/mutants.py --count 500 --seed 7 --output mutants.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.handmade import handmade_schedules  # noqa: E402
from support.judge import disagreement  # noqa: E402
from support.mutation import MUTATIONS, draw_mutant  # noqa: E402

from weft.algorithms.registry import ALGORITHMS  # noqa: E402
from weft.errors import UnsupportedError  # noqa: E402
from weft.schedule import Schedule  # noqa: E402
from weft.topology import load_topology  # noqa: E402
from weft.verification import inspect  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files  # noqa: E402

TOPOLOGIES = (
    "ring:2",
    "ring:5",
    "ring:8",
    "mesh:2x3",
    "mesh:3x3",
    "torus:3x4",
    "torus:4x4",
    "torus:2x2x2",
    "hypercube:3",
    "fullmesh:4",
    "fullmesh:7",
    "switch:6",
    "fattree:2,2,3",
    "fattree:4,2,2",
    "bigraph:2,4",
    "dragonfly:3,2,2",
    "dgx-a100:2@fabric=flat",
    "hosts:3,2,1",
    "torus:3x3+fail=0-1",
    "ring:6+fail=rank:2",
)


def registry_schedules() -> list[Schedule]:
    """Every algorithm and collective on every topology that it accepts."""
    made = []
    for spec in TOPOLOGIES:
        topology = load_topology(spec)
        for line in ALGORITHMS.values():
            for collective in line.collectives:
                try:
                    made.append(line.build(topology, collective, root=topology.ranks // 2))
                except UnsupportedError:
                    continue
    return made


def check_originals(originals: list[Schedule]) -> None:
    """Stop the run if a right schedule is refused."""
    for schedule in originals:
        report = inspect(schedule)
        wrong = disagreement(schedule, report) or report.problem
        if wrong:
            sys.exit(f"{schedule!r} as it was made: {wrong}")


def judge_mutants(originals: list[Schedule], count: int, seed: int) -> dict[str, Any]:
    """Draw mutants and compare verdicts; ``by_change`` has a row for each kind of change."""
    generator = np.random.default_rng(seed)
    accepted: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    by_check: Counter[str] = Counter()
    disagreements: list[str] = []
    for number in range(count):
        original = originals[int(generator.integers(len(originals)))]
        kinds, mutant = draw_mutant(original, generator)
        report = inspect(mutant)
        wrong = disagreement(mutant, report)
        if wrong:
            disagreements.append(f"mutant {number} of {original!r}, {', '.join(kinds)}: {wrong}")
        by_check[report.problem.check if report.problem else "accepted"] += 1
        (accepted if report.ok else rejected).update(set(kinds))
    return {
        "accepted": by_check.pop("accepted", 0),
        "rejected_by_check": dict(sorted(by_check.items())),
        "by_change": [
            {"change": kind, "accepted": accepted[kind], "rejected": rejected[kind]} for kind in MUTATIONS
        ],
        "disagreements": len(disagreements),
        "disagreement_texts": disagreements[:20],
    }


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20_240_229)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    started, began = result_files.start(), time.process_time()
    from_registry, by_hand = registry_schedules(), handmade_schedules()
    originals = from_registry + by_hand
    check_originals(originals)
    parameters = {
        "seed": arguments.seed,
        "mutants": arguments.count,
        "algorithms": sorted({schedule.algorithm for schedule in from_registry}),
        "collectives": sorted({schedule.collective for schedule in originals}),
        "topologies": sorted({schedule.topology.name for schedule in originals}),
    }
    summary = {
        "originals": {"registry": len(from_registry), "by_hand": len(by_hand), "refused": 0},
        "largest_transfers": max(schedule.transfers for schedule in originals),
        **judge_mutants(originals, arguments.count, arguments.seed),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    rows = summary.pop("by_change")
    result_files.write(arguments.output, started, parameters=parameters, summary=summary, results=rows)
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["disagreements"] else 0)


if __name__ == "__main__":
    main()
