"""Pictures of ACE's studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.papers.ace.gain_map import SHARES
from weft.papers.ace.rows import SPEEDUPS
from weft.papers.svg_charts import bar_chart, line_chart, map_chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.papers.ace.bandwidth import BandwidthCurve
    from weft.papers.ace.byte_counts import ByteCounts
    from weft.papers.ace.gain_map import Ground, MapPoint
    from weft.papers.ace.iterations import IterationCase

_LIMIT: Final = "the network"
_STUDIES: Final = {
    "memory": ("memory bandwidth for communication, GB/s", False),
    "processors": ("processors (SMs) that communicate", False),
    "sram": ("SRAM of the engine, KiB", True),
    "fsms": ("state machines of the engine", False),
}
_BANDS: Final = (
    (0.98, "ACE loses"),
    (1.02, "no difference"),
    (1.1, "up to 1.1x"),
    (1.3, "up to 1.3x"),
    (9.0, "more than 1.3x"),
)


def draw(
    counted: Mapping[str, ByteCounts],
    driven: Mapping[str, Mapping[str, float]],
    study: ByteCounts,
    curves: Mapping[str, Sequence[BandwidthCurve]],
    points: Sequence[IterationCase],
    ground: Ground,
    models: Sequence[MapPoint],
) -> dict[str, str]:
    """All of them, by name."""
    found = {}
    for what, (x_label, log_x) in _STUDIES.items():
        lines = {curve.name: [(x, rate * study.sent) for x, rate in curve.points] for curve in curves[what]}
        xs = [x for line in lines.values() for x, _ in line]
        lines[_LIMIT] = [(min(xs), study.driven_gbs), (max(xs), study.driven_gbs)]
        title = f"Network bandwidth driven on {study.shape}"
        found[what] = line_chart(title, x_label, "GB/s per rank", lines, log_x=log_x, dashed=[_LIMIT])
    names = next(iter(driven.values()))
    shares = {
        name: [100 * driven[shape][name] / counted[shape].payload_gbs for shape in driven] for name in names
    }
    title = "All-reduce alone: share of the network driven"
    found["driven"] = bar_chart(title, "%", list(driven), shares, line_at=100.0)
    for computing in dict.fromkeys(one.computing for one in points):
        mine = [one for one in points if one.computing == computing]
        shapes = list(dict.fromkeys(one.shape for one in mine))
        gains: dict[str, list[float]] = {one.model: [] for one in mine}
        for one in mine:
            gains[one.model].append(one.speedup)
        title = f"Iterations with ACE over the best baseline, computing: {computing}"
        found[f"speedup-{computing}"] = bar_chart(title, "times as fast", shapes, gains, line_at=1.0)
    found["map"] = draw_map(ground, models)
    return found


def draw_map(ground: Ground, models: Sequence[MapPoint]) -> str:
    """What ACE gains, over how much is sent and how much of computing is bound by memory."""
    marks: dict[str, list[tuple[str, float, float]]] = {}
    for one in models:
        text = f"{one.model.removeprefix('multitree-')} {one.gain:.2f}"
        marks.setdefault(f"models: {one.computing}", []).append((text, one.sending, 100 * one.memory_bound))
    sent = [one.sending for one in models]
    return map_chart(
        f"ACE over the best baseline on {models[0].shape}",
        "communication / computing",
        "computing bound by memory, %",
        ground.gain,
        (min(SHARES[0], *sent), max(SHARES[1], *sent)),
        bands=_BANDS,
        levels={f"paper: {model} {mean}x": mean for model, (mean, _) in SPEEDUPS.items()},
        points=marks,
    )
