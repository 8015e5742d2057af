"""The clusters of ``probe.py``, each probed three times: whether a probe comes to the same again.

python benchmarks/lab/probe_repeats.py        # as root, six minutes; into probe_repeats.json beside this file

Plans are timed by the engine alone, on the true network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from probe import CLUSTERS, PLANNING_S, SIZE, make_truth, plan_time, probe, worst_speed

import weft
from weft.lab import build, emulated

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

RUNS = 3
SHOWN = ("probe_s", "worst_speed_deviation", "groups", "simulated_ratio")


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
                    "probe_s": round(seconds, 1),
                    "rounds": len(report["rounds"]),
                    "worst_speed_deviation": worst_speed(found, truth),
                    "groups": report["groups"],
                    "explained": report["explained"],
                    "plan_from_probe": {"algorithm": algorithm, "simulated_s": round(planned, 4)},
                    "simulated_ratio": round(planned / best, 4),
                    "notes": report["notes"],
                    "links_bytes_per_s": {one["link"]: one["bandwidth"] for one in report["links"]},
                }
            )
            print(name, {key: runs[-1][key] for key in SHOWN})
    return {
        "cluster": name,
        "truth": described.name,
        "plan_from_truth": {"algorithm": best_algorithm, "simulated_s": round(best, 4)},
        "runs": runs,
    }


def main() -> None:
    """Measure all clusters."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    started = result_files.start()
    results = [measure(name, description) for name, description in CLUSTERS.items()]
    parameters = {"size_bytes": SIZE, "runs": RUNS, "planning_s": PLANNING_S}
    result_files.write(Path(__file__).with_suffix(".json"), started, parameters=parameters, results=results)


if __name__ == "__main__":
    main()
