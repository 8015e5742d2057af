"""How near searches for a fusion come to the best of all fusions, on the five models of the DeAR paper.

The truth: 16 hosts of 4 ranks on 10 Gbit/s as the simulator sees them, layers as the model of an RTX 2080 Ti
has them. The model that seeds the bounded search knows the network by lines, and the layers by times that are
each wrong by up to 40 %.

    python benchmarks/training/searches.py        # into results/searches.json beside this file
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import asdict, replace
from pathlib import Path

from weft.training import Layer, Simulated
from weft.training.devices import find_device
from weft.training.exhaustive import Fusions, believed, report
from weft.training.workloads import load_workload

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files

MODELS = ["bert-base", "bert-large", "resnet50", "inception-v4", "densenet201"]
NETWORK = "hosts:" + ",".join(["4"] * 16) + "@intra=10GB/s,uplink=1.25GB/s"
DEVICE = "rtx2080ti"
SEED = 1
RESULTS = Path(__file__).parent / "results" / "searches.json"


def misjudged(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The same layers with wrong times."""
    chance = random.Random(SEED)
    return tuple(
        replace(
            layer,
            forward_s=layer.forward_s * chance.uniform(0.6, 1.1),
            backward_s=layer.backward_s * chance.uniform(0.6, 1.1),
        )
        for layer in layers
    )


def table() -> str:
    """How much longer than with the best fusion an iteration takes, for docs/policies.md."""
    lines = ["| model | fusions | `prefetch` | model | bounded | bayesian |", "|---|---|---|---|---|---|"]
    for row in result_files.read(RESULTS)["results"]:
        off = {line["search"]: f"{line['distance']:.2%}".replace("%", " %") for line in row["outcomes"]}
        prefetch = "all" if row["prefetch"] is None else row["prefetch"]
        distances = " | ".join(off[search] for search in ("model", "bounded", "bayesian"))
        lines.append(f"| {row['model']} | {row['fusions']} | {prefetch} | {distances} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try every fusion and every search, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    started = result_files.start()
    network = Simulated.on(NETWORK, "ring")
    rows = []
    for name in MODELS:
        layers = load_workload(name).layers(find_device(DEVICE))
        for prefetch in (1, None):
            truth = Fusions(layers, network, prefetch=prefetch)
            belief = Fusions(misjudged(layers), believed(network), prefetch=prefetch)
            found = report(truth, belief)
            rows.append({"model": name, "prefetch": prefetch, **asdict(found)})
            distances = ", ".join(f"{line.search} {line.distance:.2%}" for line in found.outcomes)
            print(
                f"{name}, prefetch {prefetch}: best of {found.fusions} fusions; off by {distances}",
                flush=True,
            )
    parameters = {"network": NETWORK, "device": DEVICE, "seed": SEED}
    result_files.write(output, started, parameters=parameters, results=rows)


if __name__ == "__main__":
    main()
