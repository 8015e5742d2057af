"""Pictures of DeAR's reproduction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.papers.dear.cells import FUSED, QUEUED
from weft.papers.dear.forms import UNIFORM_LAYERS
from weft.papers.dear.setup import NETWORKS
from weft.papers.svg_charts import bar_chart, line_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.papers.dear.cells import Cell


def draw(
    cells: Sequence[Cell], points: Sequence[dict[str, float]], startup: dict[str, Any]
) -> dict[str, str]:
    """Draw all of them; SVG by name."""
    simulated = {
        network.name: [cell for cell in cells if cell.setting == f"{network.name}, simulated"]
        for network in NETWORKS
    }
    charts = {
        f"speedup-{network.name.lower()}": _speedups(network.title, simulated[network.name])
        for network in NETWORKS
    }
    return charts | {
        "gain": _gain(points, simulated),
        "tuner": _tuner(simulated[NETWORKS[0].name]),
        "startup": _startup(startup),
    }


def _speedups(title: str, cells: Sequence[Cell]) -> str:
    series: dict[str, list[float | None]] = {
        f"over {name}": [1 + cell.gain(name) for cell in cells] for name in (*FUSED, "wfbp-tuned")
    }
    series["ideal lines"] = [1 + cell.ideal_gain for cell in cells]
    title = f"Speed-up of DeAR as published, {title}"
    return bar_chart(title, "times as fast", [cell.model for cell in cells], series, line_at=1.0)


def _gain(points: Sequence[dict[str, float]], simulated: dict[str, list[Cell]]) -> str:
    equal, ideal = f"{UNIFORM_LAYERS} equal layers", "ideal, backward 2 f"
    series = {equal: [(point["ratio"], point["gain"]) for point in points]}
    for name, cells in simulated.items():
        series[f"models, {name}"] = _models(cells, "dear-bounded")
    queued = f"models, {NETWORKS[0].name}, queued"
    series[queued] = _models(simulated[NETWORKS[0].name], QUEUED)
    # Last, so that it lies over the line that it is so close to.
    series[ideal] = [(point["ratio"], point["ideal_gain"]) for point in points]
    return line_chart(
        "DeAR over WFBP, both with their best fusion",
        "all-reduce over forward f",
        "times as fast",
        series,
        log_x=True,
        dashed=[ideal],
        loose=[name for name in series if name.startswith("models")],
        y_from=0.9,
    )


def _models(cells: Sequence[Cell], policy: str) -> list[tuple[float, float]]:
    return [(cell.all_reduce_s / cell.forward_s, 1 + cell.gain("wfbp-tuned", policy)) for cell in cells]


def _tuner(cells: Sequence[Cell]) -> str:
    series: dict[str, list[float | None]] = {
        name: [100 * cell.tuner["searches"][name]["distance"] for cell in cells]
        for name in ("model", "bounded", "bayesian")
    }
    title = "Distance to the best of all fusions, 10 Gb/s Ethernet"
    return bar_chart(title, "percent slower", [cell.model for cell in cells], series, line_at=2.0)


def _startup(startup: dict[str, Any]) -> str:
    series = {
        name: list(zip(startup["workers"], seconds, strict=True))
        for name, seconds in startup["seconds"].items()
    }
    return line_chart(
        f"An iteration of {startup['model']}, 10 Gb/s Ethernet", "workers", "seconds", series, log_x=True
    )
