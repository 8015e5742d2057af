"""DeAR, WFBP and DistributedDataParallel train a transformer that really computes, on an emulated cluster.

    sudo python benchmarks/training/transformer.py            # results/transformer.json, docs/images
    sudo python benchmarks/training/transformer.py --quick    # tries the script in a minute, keeps nothing

First a job computes without sending, which says how long the backward pass takes with all ranks on this
machine. Links are then made so fast that an all-reduce of all gradients takes as long as that, and in a
second set-up twice as long (`--communication` sets others). In each set-up all ways take turns
(`transformer_job.py`). Losses are kept as well: all ways compute the same, up to the rounding of sums in
another order.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from weft.papers.svg_charts import line_chart

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "lab"))

import result_files  # noqa: E402
from charts import Bar, draw_bars  # noqa: E402 - beside the other charts of the lab

RESULTS = HERE / "results" / "transformer.json"
IMAGES = HERE.parents[1] / "docs" / "images"
NAMES = {
    "dear": "DeAR on Weft",
    "auto": "Weft, left to choose",
    "wfbp": "WFBP on Weft",
    "ddp weft 25": "DDP on Weft, 25 MB",
    "ddp weft 1": "DDP on Weft, 1 MB",
    "ddp gloo 25": "DDP on gloo, 25 MB",
    "ddp gloo 1": "DDP on gloo, 1 MB",
    "alone": "computing alone",
}
OWN = ("dear", "auto", "wfbp")
COMMUNICATION = (1.0, 2.0)
"""How many times as long as the backward pass an all-reduce of all gradients takes."""

POINTS = 16
"""Of a loss curve in the picture."""


@dataclass(frozen=True)
class Effort:
    """How much is trained; the model is that of examples/train_gpt.py."""

    ranks: int = 4
    width: int = 192
    depth: int = 6
    rounds: int = 8
    steps: int = 10


QUICK = Effort(ranks=2, width=32, depth=1, rounds=2, steps=2)


def run(effort: Effort, ways: list[str], topology: str, limit_s: float = 3600) -> dict[str, Any]:
    """Run one job in the lab."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        words = ["--ways", *ways, "--output", str(output)]
        for name in ("width", "depth", "rounds", "steps"):
            words += [f"--{name}", str(getattr(effort, name))]
        weft = Path(sys.executable).with_name("weft")
        command = [weft, "lab", "run", "--scale", "1", topology, HERE / "transformer_job.py", *words]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=limit_s)
        found: dict[str, Any] = json.loads(output.read_text("utf-8"))
        return found


def matching_megabits(effort: Effort) -> float:
    """Mbit/s of each link at which an all-reduce of all gradients takes as long as the backward pass."""
    found = run(replace(effort, rounds=max(2, effort.rounds // 2)), ["alone"], f"switch:{effort.ranks}")
    sent_bits = 8 * 2 * (effort.ranks - 1) / effort.ranks * found["size_bytes"]
    return float(sent_bits / found["results"][0]["backward_s"] / 1e6)


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """What others take beside DeAR in a set-up, how far losses are apart, and how long communication is."""
    medians = {row["way"]: statistics.median(row["iteration_s"]) for row in results}
    curves = [row["losses"] for row in results if row["way"] != "alone"]
    model = next(row["model"] for row in results if row["way"] == "dear")
    return {
        "communication": results[0]["communication"],
        "ratios": {f"{name} / dear": round(took / medians["dear"], 3) for name, took in medians.items()},
        "first_loss": curves[0][0],
        "last_loss": curves[0][-1],
        "largest_difference_of_losses": max(max(step) - min(step) for step in zip(*curves, strict=True)),
        "all_reduce_over_backward": model["all_reduce_s"] / model["backward_s"],
        "ideal wfbp / ideal dear": model["ideal_wfbp_s"] / model["ideal_dear_s"],
    }


def of_set_up(document: dict[str, Any], communication: float) -> dict[str, dict[str, Any]]:
    """Results of one set-up, by way."""
    return {row["way"]: row for row in document["results"] if row["communication"] == communication}


def table() -> str:
    """Iterations and losses of every way, for docs/dear.md."""
    document = result_files.read(RESULTS)
    factors = [one["communication"] for one in document["summary"]]
    found = [of_set_up(document, factor) for factor in factors]
    heads = [f"{factor:g} x backward: ms | from, to | beside DeAR" for factor in factors]
    lines = [f"| way | {' | '.join(heads)} | last loss |", "|---" * (3 * len(factors) + 2) + "|"]
    for way in found[0]:
        cells = [NAMES[way]]
        for rows in found:
            times = [1e3 * one for one in rows[way]["iteration_s"]]
            median, dear = statistics.median(times), 1e3 * statistics.median(rows["dear"]["iteration_s"])
            cells += [f"{median:,.0f}", f"{min(times):,.0f}, {max(times):,.0f}", f"{median / dear:.2f}x"]
        cells.append("-" if way == "alone" else f"{found[-1][way]['losses'][-1]:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def facts() -> str:
    """The paragraph that goes with the table, for docs/dear.md."""
    document = result_files.read(RESULTS)
    asked, summary, provenance = document["parameters"], document["summary"], document["provenance"]
    speeds = " and ".join(f"{one:g}" for one in asked["megabits"])
    measured = " and ".join(f"{one['all_reduce_over_backward']:.2f}" for one in summary)
    ideal = " and ".join(f"{one['ideal wfbp / ideal dear']:.2f}" for one in summary)
    text = (
        f"{asked['ranks']} ranks on {provenance['cores']} cores, links of {speeds} Mbit/s, "
        f"{asked['size_bytes'] / 1e6:.1f} MB of gradients, medians of {asked['rounds']} rounds of "
        f"{asked['steps']} steps, at a load of {provenance['load_before'][0]:.0f}. As DeAR measured it, an "
        f"all-reduce takes {measured} times the backward pass, and perfect overlap would make DeAR {ideal} "
        f"times as fast as WFBP. The loss falls from {summary[-1]['first_loss']:.2f} to "
        f"{summary[-1]['last_loss']:.2f}; in no step are two ways further apart than "
        f"{max(one['largest_difference_of_losses'] for one in summary):.1g}."
    )
    if provenance["load_before"][0] > 1:
        text += " **The machine had other work to do, so that the times of this run say little.**"
    return wrap(text)


def wrap(text: str, width: int = 120) -> str:
    """Break a paragraph into lines."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines) + "\n"


def draw(document: dict[str, Any], communication: float) -> dict[str, str]:
    """Bars of iterations, and losses over the seconds that the steps took; SVG by name."""
    bars, curves = [], {}
    for way, row in of_set_up(document, communication).items():
        times, median = row["iteration_s"], statistics.median(row["iteration_s"])
        expected = row.get("model", {}).get("predicted_s")
        bars.append(Bar(NAMES[way], median, (min(times), max(times)), expected, way in OWN))
        if way != "alone":
            apart = max(1, len(row["losses"]) // POINTS)
            curves[NAMES[way]] = [
                (round(number * median, 1), row["losses"][number])
                for number in range(0, len(row["losses"]), apart)
            ]
    ranks = document["parameters"]["ranks"]
    title = f"A transformer on {ranks} hosts, communication {communication:g} x backward"
    losses = line_chart(title, "seconds of training", "loss", curves)
    return {
        f"training-transformer-{communication:g}": draw_bars(f"{title} (seconds of an iteration)", bars),
        f"training-transformer-loss-{communication:g}": losses,
    }


def parse() -> tuple[argparse.Namespace, Effort]:
    """Words of the command line, and what they say of the effort."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--quick", action="store_true", help="a tiny model on two ranks, kept only by --output")
    add("--ways", nargs="+", choices=NAMES, default=list(NAMES), help="dear among them")
    add(
        "--communication",
        nargs="+",
        type=float,
        metavar="TIMES",
        help="the backward pass; 1 and 2 by default",
    )
    add(
        "--megabits", type=int, metavar="MBIT", help="of a link for 1 x backward, instead of a measured speed"
    )
    add("--output", type=Path, help="instead of results/transformer.json; no pictures then")
    for name, default in asdict(Effort()).items():
        add(f"--{name}", type=int, help=f"{default} by default")
    words = parser.parse_args()
    given = {name: getattr(words, name) for name in asdict(Effort()) if getattr(words, name) is not None}
    effort = replace(QUICK if words.quick else Effort(), **given)
    words.communication = words.communication or (COMMUNICATION[:1] if words.quick else COMMUNICATION)
    if "dear" not in words.ways:
        parser.error("--ways: everything is held against dear; name it too")
    if not all(0.01 <= factor <= 100 for factor in words.communication):
        parser.error("--communication: give factors from 0.01 to 100")
    if min(words.megabits or 1, *asdict(effort).values()) < 1 or effort.ranks < 2 or effort.width % 4:
        parser.error("give numbers of at least 1, at least 2 ranks, and a width that is a multiple of 4")
    return words, effort


def main() -> None:
    """Measure, and keep what came out unless it was quick."""
    words, effort = parse()
    started = result_files.start()
    matching = words.megabits or matching_megabits(effort)
    megabits = [max(1, round(matching / factor)) for factor in words.communication]
    results, summary = [], []
    size_bytes = 0
    for factor, speed in zip(words.communication, megabits, strict=True):
        found = run(effort, words.ways, f"switch:{effort.ranks}@bw={speed}Mbit/s")
        size_bytes = found["size_bytes"]
        rows = [{"communication": factor, **row} for row in found["results"]]
        results += rows
        summary.append(summarise(rows))
    print(json.dumps(summary, indent=1))
    output = words.output or (None if words.quick else RESULTS)
    if output is None:
        return
    parameters = {"megabits": megabits, "size_bytes": size_bytes, **asdict(effort)}
    result_files.write(output, started, parameters=parameters, summary=summary, results=results)
    if words.output is None:
        for factor in words.communication:
            for name, picture in draw(result_files.read(output), factor).items():
                (IMAGES / f"{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
