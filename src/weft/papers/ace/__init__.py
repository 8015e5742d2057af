"""ACE (Rashidi et al., ISCA 2021): what an engine beside the network interface saves.

Three studies: the arithmetic of reads and sends (`byte_counts`), the bandwidth that endpoints drive alone
(`bandwidth`), and iterations of three models (`iterations`). Figures of the paper's set-up that its
abstract does not have are recalled and were not checked; each is a field of an endpoint or a device.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft.papers.ace.bandwidth import GB, KERNELS, ROOMY, drive, sensitivity
from weft.papers.ace.byte_counts import SHAPES, ByteCounts, arithmetic
from weft.papers.ace.charts import draw
from weft.papers.ace.computing import (
    BATCHES,
    DLRM_VARIANTS,
    GNMT_VARIANTS,
    OTHER_WAYS_WHILE_SENDING,
    VARIANTS,
    WAYS,
)
from weft.papers.ace.gain_map import Ground, map_points
from weft.papers.ace.iterations import NAMES, contended, point, rates
from weft.papers.ace.rows import FULL, driven_rows, memory_rows, speed_rows, study_rows, variant_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.ace.computing import Computing
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
    checked: tuple[tuple[str, str], ...] = (("resnet50", "4x2x2"), ("resnet50", "4x4x2"))


_STUDIED: Final[dict[str, tuple[Computing, ...]]] = {
    "resnet50": (*VARIANTS, *OTHER_WAYS_WHILE_SENDING),
    "gnmt": (*GNMT_VARIANTS, *OTHER_WAYS_WHILE_SENDING),
    "dlrm": DLRM_VARIANTS,
}
"""Variants of each model. All transfers of DLRM are simulated, so it has fewer."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return 2 * len(effort.shapes) + 9 + len(WAYS) * len(effort.checked)


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
        points += [point(way, model, shape, driven[shape]) for way in WAYS for model in BATCHES]
        points += [
            point(variant, model, shape, driven[shape])
            for model, variants in _STUDIED.items()
            for variant in variants
        ]
    checks = []
    for model, shape in effort.checked:
        for way in WAYS:
            tell(f"{model} on all of {shape}")
            checks.append(_check(way, next(one for one in points if one.key == (way.name, model, shape))))
    tell(f"a map of {effort.study}")
    ground = Ground(driven[effort.study])
    models = map_points(points, effort.study, driven[effort.study])
    rows = (
        *memory_rows(counted, arithmetic(effort.study), knees),
        *driven_rows(counted, driven),
        *study_rows(effort.study, curves),
        *(row for way in WAYS for row in speed_rows(way, points)),
        *(row for model, variants in _STUDIED.items() for row in variant_rows(model, variants, points)),
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
        "map": [one.to_dict() for one in models],
    }
    main = [one for one in points if one.computing in {way.name for way in WAYS}]
    charts = draw(counted, driven, arithmetic(effort.study), curves, main, ground, models)
    return rows, data, charts


def least_bandwidth(counted: ByteCounts, size_bytes: int) -> dict[str, float]:
    """GB/s of memory with which the network is driven, by kernels and by an engine with room enough."""
    tried = range(32, 900)

    def rate(endpoint: Endpoint, gbs: int) -> float:
        return drive(counted.shape, replace(endpoint, memory_bandwidth=gbs * GB), size_bytes).payload_gbs

    return {
        name: float(tried.start + bisect_left(tried, FULL * counted.payload_gbs, key=partial(rate, endpoint)))
        for name, endpoint in (("kernels", KERNELS), ("engine", ROOMY))
    }


def _check(way: Computing, one: IterationCase) -> dict[str, Any]:
    """The whole platform beside the times of collectives alone."""
    seconds, cost = contended(way, one.model, one.shape)
    apart = max(abs(one.seconds[name] / seconds[name] - 1) for name in NAMES)
    return {
        "computing": one.computing,
        "model": one.model,
        "shape": one.shape,
        "seconds": seconds,
        "largest_difference": apart,
        "cpu_seconds": cost,
    }
