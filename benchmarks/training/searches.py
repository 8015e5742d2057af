"""How near searches for a fusion come to the best of all fusions, on the five models of the DeAR paper.

The truth: 16 hosts of 4 ranks on 10 Gbit/s as the simulator sees them, layers as the model of an RTX 2080 Ti
has them. The model that seeds the bounded search knows the network by lines, and the layers by times that are
each wrong by up to 40 %. Run it with the file to write: ``python benchmarks/training/searches.py FILE.json``.
"""

from __future__ import annotations

import random
import sys
from dataclasses import asdict, replace
from pathlib import Path

from weft.training import Layer, Simulated
from weft.training.devices import find_device
from weft.training.exhaustive import Fusions, believed, report
from weft.training.workloads import load_workload

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provenance import write_json

MODELS = ["bert-base", "bert-large", "resnet50", "inception-v4", "densenet201"]
NETWORK = "hosts:" + ",".join(["4"] * 16) + "@intra=10GB/s,uplink=1.25GB/s"
DEVICE = "rtx2080ti"
SEED = 1


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


def main(path: Path) -> None:
    """Try every fusion and every search, and write what came out after each model."""
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
            result = {"network": NETWORK, "device": DEVICE, "seed": SEED, "rows": rows}
            write_json(path, result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
