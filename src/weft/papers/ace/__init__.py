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
    COUNTED,
    DLRM_VARIANTS,
    GNMT_VARIANTS,
    OTHER_WAYS_WHILE_SENDING,
    VARIANTS,
    WAYS,
)
from weft.papers.ace.gain_map import Ground, map_points
from weft.papers.ace.iterations import NAMES, contended, point, rates
from weft.papers.ace.rows import (
    FULL,
    STUDY_CLAIMS,
    counted_rows,
    driven_rows,
    knee_row,
    model_rows,
    study_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weft.papers.ace.bandwidth import BandwidthCurve
    from weft.papers.ace.computing import Computing
    from weft.papers.ace.iterations import IterationCase
    from weft.papers.claims import Findings
    from weft.training.endpoints import Endpoint


PARTS: Final = ("network", "sensitivity", "variants", "map")
"""Rates of all-reduces alone; one figure changed at a time; other ways to compute; and the map of gains."""


CHECKED: Final = tuple((model, shape) for model in ("resnet50", "gnmt") for shape in ("4x2x2", "4x4x2"))
"""Models and sizes that are simulated with every transfer contending as well. DLRM always is."""


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
    models
        Whose iterations are simulated, of those of the paper.
    parts
        Some of `PARTS`.
    """

    shapes: tuple[str, ...] = SHAPES
    size_bytes: int = 16 << 20
    study: str = "4x4x4"
    study_bytes: int = 8 << 20
    thin: int = 1
    checked: tuple[tuple[str, str], ...] = CHECKED
    models: tuple[str, ...] = tuple(BATCHES)
    parts: tuple[str, ...] = PARTS


_LEAST: Final = Effort(checked=(), models=(), parts=())
_DRIVEN: Final = replace(_LEAST, models=("resnet50", "gnmt"), parts=("network",))
NEEDED: Final = {
    "ace-memory": _LEAST,
    **dict.fromkeys(("ace-network", "ace-network-most"), _DRIVEN),
    **dict.fromkeys(("ace-resnet50", "ace-resnet50-most", "ace-gnmt", "ace-gnmt-most"), _DRIVEN),
    **dict.fromkeys(("ace-dlrm", "ace-dlrm-most"), replace(_DRIVEN, models=("dlrm",))),
    **dict.fromkeys(STUDY_CLAIMS, replace(_LEAST, parts=("sensitivity",))),
}
"""What of the studies suffices for each claim. Iterations of two models take next to nothing beside rates."""

_STUDIED: Final[dict[str, tuple[Computing, ...]]] = {
    "resnet50": (*VARIANTS, *OTHER_WAYS_WHILE_SENDING),
    "gnmt": (*GNMT_VARIANTS, *OTHER_WAYS_WHILE_SENDING),
    "dlrm": DLRM_VARIANTS,
}
"""Variants of each model. All transfers of DLRM are simulated, so it has fewer."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return (
        len(effort.shapes) * (("network" in effort.parts) + bool(effort.models))
        + 8 * ("sensitivity" in effort.parts)
        + len(WAYS) * len(effort.checked)
        + ("map" in effort.parts)
    )


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the arithmetic, the bandwidth studies and the iterations."""
    counted = {shape: arithmetic(shape) for shape in effort.shapes}
    middle = arithmetic(effort.study)
    yield from counted_rows(counted, middle)
    knees: dict[str, float] = {}
    curves: dict[str, tuple[BandwidthCurve, ...]] = {}
    if "sensitivity" in effort.parts:
        curves = sensitivity(effort.study, effort.study_bytes, tell, effort.thin)
        tell("least memory bandwidth")
        knees = least_bandwidth(middle, effort.size_bytes)
        yield knee_row(middle, knees)
        yield from study_rows(effort.study, curves)
    driven: dict[str, dict[str, float]] = {}
    if "network" in effort.parts:
        for shape in effort.shapes:
            tell(f"all-reduces on {shape}")
            driven[shape] = rates(shape, effort.size_bytes)
        yield from driven_rows(counted, driven)
    points = list(_iterate(effort, driven, tell))
    for model in effort.models:
        yield from model_rows(model, [one for one in points if one.model == model], _ways(effort, model))
    checks = []
    for model, shape in effort.checked:
        for way in WAYS:
            tell(f"{model} on all of {shape}")
            checks.append(_check(way, next(one for one in points if one.key == (way.name, model, shape))))
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
    if "map" not in effort.parts:
        return data, dict
    tell(f"a map of {effort.study}")
    ground = Ground(driven[effort.study])
    models = map_points(points, effort.study, driven[effort.study])
    main = [one for one in points if one.computing in {way.name for way in WAYS}]
    data["map"] = [one.to_dict() for one in models]
    return data, lambda: draw(counted, driven, middle, curves, main, ground, models)


def _ways(effort: Effort, model: str) -> tuple[Computing, ...]:
    """Ways to compute a model: the one that counts, then the others."""
    return (*WAYS, *_STUDIED[model]) if "variants" in effort.parts else (COUNTED,)


def _iterate(
    effort: Effort, driven: Mapping[str, Mapping[str, float]], tell: Callable[[str], None]
) -> Iterator[IterationCase]:
    """Every model by every way to compute it, on every size."""
    for shape in effort.shapes if effort.models else ():
        tell(f"iterations on {shape}")
        for model in effort.models:
            yield from (point(way, model, shape, driven[shape]) for way in _ways(effort, model))


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
