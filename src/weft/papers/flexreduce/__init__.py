"""FlexReduce (DAC 2020): uneven portions for clusters whose hosts, racks or links differ.

Two studies: clusters that are given (`clusters.SCENARIOS`), and what a shared cloud hands out by chance
(`clusters.STUDIES`). Every schedule is verified and simulated (`timing`), beside conventional all-reduces
(`baselines`) and the proven limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.papers.flexreduce.charts import draw
from weft.papers.flexreduce.clusters import (
    ASYMMETRIC,
    SCENARIOS,
    STUDIES,
    SYMMETRIC,
    Scenario,
    Study,
    is_symmetric,
)
from weft.papers.flexreduce.rows import case_rows, draw_rows, summary_rows
from weft.papers.flexreduce.timing import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings
    from weft.papers.flexreduce.rows import Case, Draws


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Parameters
    ----------
    scenarios, sizes
        Clusters that are given, and buffers on each.
    studies, draws, draw_size
        Kinds of clouds, draws of each, and the buffer.
    """

    scenarios: tuple[Scenario, ...] = SCENARIOS
    sizes: tuple[str, ...] = ("1MiB", "16MiB", "128MiB")
    studies: tuple[Study, ...] = STUDIES
    draws: int = 16
    draw_size: str = "64MiB"


NEEDED: Final = {
    name: Effort(scenarios=tuple(one for one in SCENARIOS if one.kind in kinds), studies=())
    for name, kinds in {"flexreduce-asymmetric": ASYMMETRIC, "flexreduce-symmetric": (SYMMETRIC,)}.items()
}
"""What of the clusters suffices for each claim."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return sum(len(scenario.inside) for scenario in effort.scenarios) + len(effort.studies) * effort.draws


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the given clusters and the draws of the cloud."""
    cases: list[Case] = []
    for scenario in effort.scenarios:
        for inside in scenario.inside:
            tell(f"{scenario.name}, {inside}")
            cases.append((scenario, inside, measure(scenario.topology(inside), effort.sizes)))
    if cases:
        yield from summary_rows(cases)
    studies: dict[str, Draws] = {}
    for kind in effort.studies:
        studies[kind.name] = []
        for seed in range(effort.draws):
            tell(f"{kind.name}, draw {seed}")
            topology = kind.topology(seed)
            (point,) = measure(topology, [effort.draw_size], as_it_comes=True)
            studies[kind.name].append((point, is_symmetric(topology)))
        yield from draw_rows(kind, studies[kind.name])
    yield from case_rows(cases)
    return _data(cases, studies), lambda: draw(cases, studies)


def _data(cases: list[Case], studies: dict[str, Draws]) -> dict[str, Any]:
    return {
        "clusters": [
            {"name": scenario.name, "kind": scenario.kind, "inside": inside, **point.to_dict()}
            for scenario, inside, points in cases
            for point in points
        ],
        "placements": {
            name: [{"symmetric": symmetric, **point.to_dict()} for point, symmetric in draws]
            for name, draws in studies.items()
        },
    }
