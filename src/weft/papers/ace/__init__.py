"""ACE (Rashidi et al., ISCA 2021): what an engine beside the network interface saves.

Three studies: the arithmetic of reads and sends (`byte_counts`), the bandwidth that endpoints drive alone
(`bandwidth`), and iterations of three models (`iterations`). Figures of the paper's set-up that its
abstract does not have are recalled and were not checked; each is a field of an endpoint or a device.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.papers.ace.bandwidth import GB, KERNELS, ROOMY, drive, sensitivity
from weft.papers.ace.byte_counts import SHAPES, ByteCounts, arithmetic
from weft.papers.ace.charts import draw
from weft.papers.ace.iterations import BATCHES, NAMES, contended, point, rates
from weft.papers.ace.rows import FULL, driven_rows, memory_rows, speed_rows, study_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.ace.iterations import IterationCase
    from weft.papers.claims import Findings
    from weft.training.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Parameters
    ----------
    shapes
        Sizes of the platform.
    size_bytes
        Of all-reduces alone.
    study
        Size of the platform in the studies of sensitivity.
    study_bytes, thin
        Of their all-reduces, and which of their figures are taken.
    checked
        Models and sizes whose iterations are also simulated whole.
    """

    shapes: tuple[str, ...] = SHAPES
    size_bytes: int = 16 << 20
    study: str = "4x4x4"
    study_bytes: int = 8 << 20
    thin: int = 1
    checked: tuple[tuple[str, str], ...] = (("resnet50", "4x2x2"),)


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return 2 * len(effort.shapes) + 7 + 2 * len(effort.checked)


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the arithmetic, the bandwidth studies and the iterations."""
    counted = {shape: arithmetic(shape) for shape in effort.shapes}
    driven = {}
    for shape in effort.shapes:
        tell(f"all-reduces on {shape}")
        driven[shape] = rates(shape, effort.size_bytes)
    curves = sensitivity(effort.study, effort.study_bytes, tell, effort.thin)
    tell("least memory bandwidth")
    knees = least_bandwidth(arithmetic(effort.study), effort.size_bytes)
    points = []
    for shape in effort.shapes:
        tell(f"iterations on {shape}")
        points += [
            point(name, model, shape, driven[shape]) for name in ("roofline", "peak") for model in BATCHES
        ]
    checks = []
    for model, shape in effort.checked:
        for name in ("roofline", "peak"):
            tell(f"{model} on all of {shape}")
            checks.append(_check(next(one for one in points if one.key == (name, model, shape))))
    rows = (
        *memory_rows(counted, arithmetic(effort.study), knees),
        *driven_rows(counted, driven),
        *study_rows(effort.study, curves),
        *(row for name in ("roofline", "peak") for row in speed_rows(name, points)),
    )
    data: dict[str, Any] = {
        "arithmetic": [one.to_dict() for one in counted.values()],
        "payload_gbs": driven,
        "least_memory_gbs": knees,
        "sensitivity": {
            what: {curve.name: [list(pair) for pair in curve.points] for curve in found}
            for what, found in curves.items()
        },
        "iterations": [one.to_dict() for one in points],
        "checks": checks,
    }
    return rows, data, draw(counted, driven, arithmetic(effort.study), curves, points)


def least_bandwidth(counted: ByteCounts, size_bytes: int) -> dict[str, float]:
    """GB/s of memory with which the network is driven, by kernels and by an engine with room enough."""
    tried = range(32, 900)

    def rate(endpoint: Endpoint, gbs: int) -> float:
        return drive(counted.shape, replace(endpoint, memory_bandwidth=gbs * GB), size_bytes).payload_gbs

    return {
        name: float(tried.start + bisect_left(tried, FULL * counted.payload_gbs, key=partial(rate, endpoint)))
        for name, endpoint in (("kernels", KERNELS), ("engine", ROOMY))
    }


def _check(one: IterationCase) -> dict[str, Any]:
    """The whole platform beside the times of collectives alone."""
    seconds, cost = contended(one.computing, one.model, one.shape)
    apart = max(abs(one.seconds[name] / seconds[name] - 1) for name in NAMES)
    return {
        "computing": one.computing,
        "model": one.model,
        "shape": one.shape,
        "seconds": seconds,
        "largest_difference": apart,
        "cpu_seconds": cost,
    }
