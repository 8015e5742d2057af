"""DeAR, WFBP and DistributedDataParallel on gloo, training the same model on emulated clusters.

    sudo python benchmarks/torch/training.py [NAME ...]      # results/training-NAME.json, docs/images

Each set-up is one job (`training_job.py`) in which all ways take turns. For DistributedDataParallel, buckets
of torch's default size and of one megabyte are tried. On grids gloo's ranks follow a ring of cables, which
is the best order for it. The ideal lines are those of perfect overlap (`weft.training.ideal_wfbp`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lab"))
from charts import Bar, draw_bars  # noqa: E402 - beside the other charts of the lab

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files  # noqa: E402

IMAGES = HERE.parents[1] / "docs" / "images"
NAMES = {
    "dear": "DeAR on Weft",
    "auto": "Weft, left to choose",
    "wfbp": "WFBP on Weft",
    "ddp 25": "DDP on gloo, buckets of 25 MB",
    "ddp 1": "DDP on gloo, buckets of 1 MB",
    "alone": "computing alone",
}


@dataclass(frozen=True)
class SetUp:
    """A cluster, a model, and what takes turns on it; seconds are those of a rank's own computing."""

    title: str
    topology: str
    forward: float
    backward: float
    blocks: int
    ways: tuple[str, ...]
    order: tuple[int, ...] = ()
    rounds: int = 5
    steps: int = 5


ALL = ("dear", "auto", "wfbp", "ddp 25", "ddp 1", "alone")
SET_UPS = {
    "hosts": SetUp(
        "4 hosts, 100 Mbit/s each: communication is twice the backward pass",
        "switch:4@bw=100Mbit/s",
        0.26,
        0.52,
        8,
        ALL,
    ),
    "slow-compute": SetUp(
        "4 hosts, 100 Mbit/s each: communication is shorter than the backward pass",
        "switch:4@bw=100Mbit/s",
        0.7,
        1.4,
        8,
        ("auto", "dear", "wfbp", "ddp 25", "ddp 1", "alone"),
        rounds=4,
        steps=4,
    ),
    "torus": SetUp(
        "2x4 torus, 20 Mbit/s a cable: communication dominates",
        "torus:2x4@bw=20Mbit/s",
        0.1,
        0.2,
        4,
        ("dear", "auto", "wfbp", "ddp 25", "ddp 1"),
        order=(0, 1, 2, 3, 7, 6, 5, 4),
        steps=3,
    ),
}


def run(name: str) -> None:
    """Run a set-up, keep its figures, draw them."""
    asked = SET_UPS[name]
    output = HERE / "results" / f"training-{name}.json"
    words = [
        *("--ways", *asked.ways, "--forward", str(asked.forward), "--backward", str(asked.backward)),
        *("--blocks", str(asked.blocks), "--rounds", str(asked.rounds), "--steps", str(asked.steps)),
        *("--output", str(output)),
    ]
    if asked.order:
        words += ["--order", *map(str, asked.order)]
    weft = Path(sys.executable).with_name("weft")
    command = [weft, "lab", "run", "--scale", "1", asked.topology, HERE / "training_job.py", *words]
    started = result_files.start()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=1800)
    found = json.loads(output.read_text("utf-8"))
    summary = {"ratios": ratios(found["results"])}
    parameters = {
        "title": asked.title,
        "topology": asked.topology,
        "size_bytes": found["size_bytes"],
        "forward_s": asked.forward,
        "backward_s": asked.backward,
        "blocks": asked.blocks,
        "rounds": asked.rounds,
        "steps": asked.steps,
        "order": asked.order,
    }
    result_files.write(output, started, parameters=parameters, summary=summary, results=found["results"])
    (IMAGES / f"training-{name}.svg").write_text(draw(asked, found["results"]), "utf-8")
    print(json.dumps(summary, indent=1))


def ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    """What others take beside DeAR, and how much of the ideal gain over WFBP is there."""
    medians = {row["way"]: statistics.median(row["iteration_s"]) for row in results}
    told = {f"{name} / dear": round(took / medians["dear"], 3) for name, took in medians.items()}
    model = next(row["model"] for row in results if row["way"] == "auto")
    ideal = model["ideal_wfbp_s"] / model["ideal_dear_s"]
    told["ideal wfbp / ideal dear"] = round(ideal, 3)
    if ideal > 1:
        gain = medians["wfbp"] / medians["dear"] - 1
        told["share of the ideal gain"] = round(gain / (ideal - 1), 2)
    return told


def draw(asked: SetUp, results: list[dict[str, Any]]) -> str:
    """Bars, with what DeAR's model expects."""
    bars = []
    for row in results:
        name, times = row["way"], row["iteration_s"]
        expected = row.get("model", {}).get("predicted_s")
        own = name in ("dear", "auto", "wfbp")
        bars.append(Bar(NAMES[name], statistics.median(times), (min(times), max(times)), expected, own))
    return draw_bars(f"{asked.title} (seconds of an iteration)", bars)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SET_UPS:
        run(chosen)
