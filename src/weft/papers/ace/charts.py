"""Pictures of ACE's studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.papers.svg_charts import bar_chart, line_chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.papers.ace.bandwidth import BandwidthCurve
    from weft.papers.ace.byte_counts import ByteCounts
    from weft.papers.ace.iterations import IterationCase

_LIMIT: Final = "the network"
_STUDIES: Final = {
    "memory": ("memory bandwidth for communication, GB/s", False),
    "processors": ("processors (SMs) that communicate", False),
    "sram": ("SRAM of the engine, KiB", True),
    "fsms": ("state machines of the engine", False),
}


def draw(
    counted: Mapping[str, ByteCounts],
    driven: Mapping[str, Mapping[str, float]],
    study: ByteCounts,
    curves: Mapping[str, Sequence[BandwidthCurve]],
    points: Sequence[IterationCase],
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
    return found
