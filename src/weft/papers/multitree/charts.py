"""Pictures of the reproduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.papers.multitree.iterations_study import speedups
from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, RING, RING_2D
from weft.papers.svg_charts import bar_chart, curves, line_chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.papers.multitree.iterations_study import Trained
    from weft.papers.multitree.reference import Compared
    from weft.papers.multitree.sweeps import AllReduceCase


def draw(
    compared: Sequence[Compared],
    trained: Sequence[Trained],
    scaled: Sequence[AllReduceCase],
    swept: Sequence[AllReduceCase],
) -> dict[str, str]:
    """Every picture, by name."""
    charts = {"validation": _validation(compared)}
    if trained:
        charts["all-reduce"] = _speedups(trained, "reducing_s", "All-reduce of all gradients, 8x8 torus")
        charts["training"] = _speedups(trained, "iteration_s", "Iterations, one after the other, 8x8 torus")
        charts["overlapped"] = _speedups(
            trained, "overlapped_s", "Iterations, overlapped layer by layer, 8x8 torus"
        )
    if scaled:
        charts["scaling"] = _scaling(scaled)
    for network in dict.fromkeys(point.network for point in swept):
        charts[network] = _sizes([point for point in swept if point.network == network], network)
    return charts


def _validation(compared: Sequence[Compared]) -> str:
    lines = curves(compared, "algorithm", lambda row: row.kib, lambda row: 100 * row.deviation)
    title, loose = "Total cycles beside the authors' simulator", tuple(lines)
    return line_chart(title, "KiB", "% more than theirs", lines, log_x=True, loose=loose, y_from=-20)


def _speedups(trained: Sequence[Trained], quantity: str, title: str) -> str:
    networks = list(dict.fromkeys(row.network for row in trained))
    series = {
        name: list(speedups(trained, name, RING, quantity).values())
        for name in (RING_2D, MULTITREE, MULTITREE_MSG)
    }
    return bar_chart(title, "times as fast as ring", networks, series, line_at=1.0)


def _scaling(points: Sequence[AllReduceCase]) -> str:
    lines = curves(points, "algorithm", lambda point: point.nodes, lambda point: 1e6 * point.seconds)
    return line_chart("Weak scaling on tori, 384 KiB for each node", "nodes", "microseconds", lines)


def _sizes(points: Sequence[AllReduceCase], network: str) -> str:
    lines = curves(points, "algorithm", lambda point: point.size_bytes / 1024, lambda point: point.GBps)
    title = f"All-reduce on the {network} of {points[0].nodes} nodes"
    return line_chart(title, "KiB", "GB/s", lines, log_x=True)
