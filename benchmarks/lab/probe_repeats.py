"""The clusters of ``probe.py``, each probed three times: whether a probe comes to the same again.

python benchmarks/lab/probe_repeats.py        # as root, six minutes; into probe_repeats.json beside this file

Plans are timed by the engine alone, on the true network.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from probe import CLUSTERS, PLANNING_S, SIZE, make_truth, plan_time, probe, worst_speed

import weft
from weft.lab import build, emulated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provenance import write_json

RUNS = 3


def measure(name: str, description: Any) -> dict[str, Any]:
    """One cluster, several times; every run is kept."""
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        described = make_truth(name, description, folder)
        truth = emulated(described)
        best_algorithm, best = plan_time(weft.plan(truth, SIZE, time_limit=PLANNING_S), truth)
        for _ in range(RUNS):
            with build(described) as network:
                found, report, seconds = probe(network, folder)
            algorithm, planned = plan_time(weft.plan(found, SIZE, time_limit=PLANNING_S), truth)
            runs.append(
                {
                    "seconds": round(seconds, 1),
                    "rounds": len(report["rounds"]),
                    "worst_speed": worst_speed(found, truth),
                    "groups": report["groups"],
                    "explained": report["explained"],
                    "plan": algorithm,
                    "plan_seconds": round(planned, 4),
                    "ratio": round(planned / best, 4),
                    "notes": report["notes"],
                    "links": {one["link"]: one["bandwidth"] for one in report["links"]},
                }
            )
            print(name, {key: runs[-1][key] for key in ("seconds", "worst_speed", "groups", "ratio")})
    return {
        "cluster": name,
        "truth": described.name,
        "size": "4MiB",
        "plan_from_truth": [best_algorithm, round(best, 4)],
        "runs": runs,
    }


def main() -> None:
    """Measure all, or those that are named; what was measured of the others stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="clusters, by default all")
    names = parser.parse_args().names or list(CLUSTERS)
    path = Path(__file__).with_suffix(".json")
    before = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []
    known = {one["cluster"]: one for one in before}
    known |= {name: measure(name, CLUSTERS[name]) for name in names}
    results = [known[name] for name in CLUSTERS if name in known]
    write_json(path, {"results": results})


if __name__ == "__main__":
    main()
