"""DeAR, WFBP and DistributedDataParallel on gloo, training the same model on emulated clusters.

    sudo python benchmarks/torch/lab_training.py                     # all set-ups, 8 minutes each at most
    sudo python benchmarks/torch/lab_training.py hosts torus         # these two
    sudo python benchmarks/torch/lab_training.py --minutes 5 hosts   # fewer rounds
    sudo python benchmarks/torch/lab_training.py --quick --out DIR   # two ranks, one round: a trial

Results are results/training-NAME.json, and pictures in docs/images. Each set-up is one job
(`training_job.py`) in which all ways take turns, in an order that is drawn for each round (`--seed`, which
weights and inputs are drawn with too). For DistributedDataParallel on gloo, buckets of torch's default size,
of four and of one megabyte are tried, and the best of them counts; on Weft the first and the last. On grids
gloo's ranks follow a ring of cables, which is the best order for it. A job says after each round how long is
left, begins no round that would end after its minutes, and what was measured until it is stopped is written.

**The ideal** of a set-up is one number, `ideal_s`: what no DeAR can beat on that network (`placed_dear` of
`weft.training`). Layers compute as long as when nobody sends (way ``alone``), a gradient is not sent before
it is computed, no layer computes before it has its parameters, and each half of the all-reduce takes the
lower bound of the network as emulated, whatever the schedule. It owes nothing to what DeAR measured or chose.
The share of the ideal gain is (wfbp - dear) / (wfbp - ideal), in seconds of an iteration; it is told where
there is a gain of a twentieth or more. `bound_s` is the better of that and of the same for WFBP, with whole
all-reduces: what no policy can beat. The share of what the bound allows over DDP on gloo is what of (DDP on
gloo with its best buckets) / `bound_s` was reached.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lab"))
from charts import Bar, draw_bars  # noqa: E402 - beside the other charts of the lab

from weft.bounds.collective_bound import lower_bound  # noqa: E402
from weft.lab.expected_time import emulated  # noqa: E402
from weft.topology import load_topology  # noqa: E402
from weft.training import AlphaBeta, Layer, Linear  # noqa: E402
from weft.training.iteration import placed_dear, placed_wfbp  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import result_files  # noqa: E402
from bounded_run import BoundedRun  # noqa: E402

MINUTES = 8.0
WORTH = 0.95
"""Where the ideal is a larger part of WFBP than this, there is no gain whose share could be measured."""

IMAGES = HERE.parents[1] / "docs" / "images"
NAMES = {
    "dear": "DeAR on Weft",
    "auto": "Weft, left to choose",
    "wfbp": "WFBP on Weft",
    "ddp 25": "DDP on gloo, buckets of 25 MB",
    "ddp 4": "DDP on gloo, buckets of 4 MB",
    "ddp 1": "DDP on gloo, buckets of 1 MB",
    "ddp weft 25": "DDP on Weft, buckets of 25 MB",
    "ddp weft 1": "DDP on Weft, buckets of 1 MB",
    "overlap weft": "FSDP2 on Weft, overlapped",
    "fsdp weft": "FSDP2 on Weft",
    "fsdp gloo": "FSDP2 on gloo",
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


DDP = ("ddp 25", "ddp 4", "ddp 1", "ddp weft 25", "ddp weft 1")
ALL = ("dear", "auto", "wfbp", *DDP, "alone")
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
        ("auto", "dear", "wfbp", *DDP, "alone"),
        rounds=4,
        steps=4,
    ),
    "torus": SetUp(
        "2x4 torus, 20 Mbit/s a cable: communication dominates",
        "torus:2x4@bw=20Mbit/s",
        0.1,
        0.2,
        4,
        ALL,
        order=(0, 1, 2, 3, 7, 6, 5, 4),
        steps=3,
    ),
    "sharded": SetUp(
        "4 hosts, 100 Mbit/s each: FSDP2, communication is twice the backward pass",
        "switch:4@bw=100Mbit/s",
        0.26,
        0.52,
        8,
        ("overlap weft", "fsdp weft", "fsdp gloo", "alone"),
        rounds=4,
        steps=4,
    ),
}


QUICK = SetUp("two hosts", "switch:2@bw=100Mbit/s", 0.02, 0.04, 2, ALL, rounds=1, steps=1)


def run(name: str, asked: SetUp, minutes: float, seed: int, folder: Path, images: Path | None) -> bool:
    """Run a set-up, keep its figures, draw them; whether it came to its end."""
    clock = BoundedRun(minutes)
    started, found = result_files.start(), None
    weft = Path(sys.executable).with_name("weft")
    clock.tell(f"{name}: {len(asked.ways)} ways, {asked.rounds} rounds", 60 * minutes)
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "found.json"
        words = [
            *("--ways", *asked.ways, "--forward", str(asked.forward), "--backward", str(asked.backward)),
            *("--blocks", str(asked.blocks), "--rounds", str(asked.rounds), "--steps", str(asked.steps)),
            *("--seed", str(seed), "--minutes", str(minutes), "--output", str(output)),
        ]
        if asked.order:
            words += ["--order", *map(str, asked.order)]
        command = [weft, "lab", "run", "--scale", "1", asked.topology, HERE / "training_job.py", *words]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        with clock.stoppable():
            try:
                subprocess.run(command, check=True, env=variables, timeout=60 * minutes + 300)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                clock.stopped = f"failed: {error}"
        if output.exists():
            found = json.loads(output.read_text("utf-8"))
    if found is None:
        return False
    ideal = ideal_of(asked, found["results"], found["size_bytes"])
    summary = {"ratios": ratios(found["results"], ideal), **ideal}
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
        "seed": seed,
        "minutes": minutes,
        "stopped": clock.stopped,
    }
    path = folder / f"training-{name}.json"
    result_files.write(path, started, parameters=parameters, summary=summary, results=found["results"])
    if images is not None:
        (images / f"training-{name}.svg").write_text(draw(asked, found["results"]), "utf-8")
    print(json.dumps(summary, indent=1))
    return clock.stopped is None


def ideal_of(asked: SetUp, results: list[dict[str, Any]], size_bytes: int) -> dict[str, float]:
    """What DeAR cannot beat, and what no policy can; nothing where computing alone was not measured."""
    alone = [row["iteration_s"] for row in results if row["way"] == "alone"]
    if not alone or not any(row["way"] == "dear" for row in results):
        return {}
    factor = statistics.median(alone[0]) / (asked.forward + asked.backward) / asked.blocks
    layers = [
        Layer(f"block {index}", size_bytes // asked.blocks, asked.forward * factor, asked.backward * factor)
        for index in range(asked.blocks)
    ]
    network = emulated(load_topology(asked.topology))
    scatter, gather, whole = (
        AlphaBeta(0.0, lower_bound(network, kind, size_bytes).seconds / size_bytes)
        for kind in ("reduce_scatter", "all_gather", "all_reduce")
    )
    ideal = placed_dear(layers, Linear.in_halves(scatter, gather))
    costs = Linear(scatter, gather, whole)
    return {"ideal_s": ideal, "bound_s": min(ideal, placed_wfbp(layers, costs))}


def ratios(results: list[dict[str, Any]], ideal: dict[str, float]) -> dict[str, float]:
    """What others take beside DeAR, what share of the ideal gain over WFBP that is, and how good the choice.

    What is sharded has neither policies nor a choice, and is compared with the overlapped one.
    """
    medians = {row["way"]: statistics.median(row["iteration_s"]) for row in results}
    first = "dear" if "dear" in medians else "overlap weft"
    told = {f"{name} / {first}": round(took / medians[first], 3) for name, took in medians.items()}
    if first != "dear":
        return told
    told["auto / best policy"] = round(medians["auto"] / min(medians["dear"], medians["wfbp"]), 3)
    model = next(row["model"] for row in results if row["way"] == "auto")
    told["ideal wfbp / ideal dear"] = round(model["ideal_wfbp_s"] / model["ideal_dear_s"], 3)
    if ideal:
        gloo = min(took for name, took in medians.items() if name in DDP and "weft" not in name)
        told["best ddp on gloo / auto"] = round(gloo / medians["auto"], 3)
        best = min(medians["dear"], medians["auto"])
        told["share of what the bound allows over ddp on gloo"] = round(ideal["bound_s"] / best, 3)
        if ideal["ideal_s"] < WORTH * medians["wfbp"]:
            for name in ("dear", "auto"):
                share = (medians["wfbp"] - medians[name]) / (medians["wfbp"] - ideal["ideal_s"])
                told[f"share of the ideal gain, {name}"] = round(share, 3)
    return told


def draw(asked: SetUp, results: list[dict[str, Any]]) -> str:
    """Bars, with what DeAR's model expects."""
    bars = []
    for row in results:
        name, times = row["way"], row["iteration_s"]
        expected = row.get("model", {}).get("predicted_s")
        own = name in ("dear", "auto", "wfbp", "overlap weft")
        bars.append(Bar(NAMES[name], statistics.median(times), (min(times), max(times)), expected, own))
    return draw_bars(f"{asked.title} (seconds of an iteration)", bars)


def main() -> int:
    """Run what the command line names; 1 if something was stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SET_UPS)}; all by default")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each set-up, 8 by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="the folder of the results")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SET_UPS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; known: {', '.join(SET_UPS)}")
    kept = given.out == HERE / "results"
    if given.quick and kept:
        parser.error("--quick needs --out: its figures are nothing to keep")
    asked = {"quick": QUICK} if given.quick else {name: SET_UPS[name] for name in given.names or SET_UPS}
    for name, one in asked.items():
        if not run(name, one, given.minutes, given.seed, given.out, IMAGES if kept else None):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
