"""FlexReduce (DAC 2020): uneven portions for clusters whose hosts, racks or links differ.

Two studies: clusters that are given (`clusters.SCENARIOS`), and what a shared cloud hands out by chance
(`clusters.STUDIES`). Every schedule is verified and simulated (`timing`), beside conventional all-reduces
(`baselines`) and the proven limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.papers.flexreduce.charts import draw
from weft.papers.flexreduce.clusters import SCENARIOS, STUDIES, Scenario, Study, is_symmetric
from weft.papers.flexreduce.rows import case_rows, draw_rows, summary_rows
from weft.papers.flexreduce.timing import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings
    from weft.papers.flexreduce.rows import Case, Draws

TITLE: Final = "FlexReduce: flexible all-reduce on asymmetric network topology (DAC 2020)"
REFERENCE: Final = "J. Lee et al., DAC 2020"
ASSUMPTIONS: Final = (
    (
        "of the paper only the abstract was at hand: that it gives learners uneven portions, beats "
        "conventional algorithms on asymmetric structures and is equal or better on symmetric ones; its "
        "equations, testbed, baselines and numbers are not known, and none is called the paper's here"
    ),
    "FlexReduce is our own derivation from that idea (docs/flexreduce.md)",
    (
        "clusters are ours: hosts with 120 GB/s for each GPU and 500 ns (six NVLinks of 20 GB/s to a "
        "switch) or 12 GB/s and 2.85 us (PCIe 3.0 x16), NICs of 100 Gb/s and 1.95 us, one for a host unless"
        " said otherwise; a rack's uplink has 100 Gb/s in given clusters, half of what its four hosts have "
        "in the cloud"
    ),
    (
        "the cloud is ours: 16 hosts of eight GPUs in racks of four, 96 of 128 GPUs taken by jobs of 1, 2, "
        "4 or 8 GPUs that lie where there was room, and a job that asks for 16; unequal NICs are 100 or 25 "
        "Gb/s, as likely either way"
    ),
    (
        "conventional are a ring through all GPUs, leaders (chains inside hosts, leaders across), "
        "BlueConnect and the double binary tree; each has the options that weft plan tries, and its fastest"
        " counts, as do FlexReduce's three (auto, levels, ring) on given clusters; in the cloud FlexReduce "
        "has only its default"
    ),
    (
        "BlueConnect needs equal groups: elsewhere it takes levels that divide all hosts evenly, or the "
        "largest symmetric part with the other ranks handing their data to it; the faster counts, where "
        "either applies"
    ),
    (
        "every schedule is verified, and simulated whole and in segments of 64 KiB to 4 MiB, of which the "
        "best counts; links carry one message at a time, switches take any number of senders"
    ),
)


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
    studies: dict[str, Draws] = {}
    for kind in effort.studies:
        studies[kind.name] = []
        for seed in range(effort.draws):
            tell(f"{kind.name}, draw {seed}")
            topology = kind.topology(seed)
            (point,) = measure(topology, [effort.draw_size], as_it_comes=True)
            studies[kind.name].append((point, is_symmetric(topology)))
    rows = (
        *summary_rows(cases),
        *(row for kind in effort.studies for row in draw_rows(kind, studies[kind.name])),
        *case_rows(cases),
    )
    return rows, _data(cases, studies), draw(cases, studies)


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
