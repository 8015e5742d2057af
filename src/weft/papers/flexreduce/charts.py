"""Pictures of FlexReduce beside the conventional all-reduces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft import units
from weft.papers.flexreduce.baselines import NAMES
from weft.papers.flexreduce.clusters import COUNTS, EACH, NICS, RACKS, SYMMETRIC
from weft.papers.flexreduce.timing import EQUAL
from weft.papers.svg_charts import bar_chart, line_chart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.papers.flexreduce.rows import Case, Draws

PICTURES: Final = {
    "symmetric": ("NVLink", (SYMMETRIC,), "Symmetric clusters, NVLink hosts"),
    "counts-nvlink": ("NVLink", (COUNTS, RACKS), "GPUs of hosts differ, NVLink hosts"),
    "counts-pcie": ("PCIe", (COUNTS, RACKS), "GPUs of hosts differ, PCIe hosts"),
    "nics": ("NVLink", (NICS,), "NICs differ, NVLink hosts"),
    "each": ("NVLink", (EACH,), "A NIC for each GPU, GPUs of hosts differ"),
}
"""By name: sort of hosts, kinds of clusters, and the title."""


def draw(cases: Sequence[Case], studies: Mapping[str, Draws]) -> dict[str, str]:
    """All of them, by name."""
    found = {}
    for name, (inside, kinds, title) in PICTURES.items():
        mine = [
            (one.name.split(", ")[0], points[-1])
            for one, sort, points in cases
            if sort == inside and one.kind in kinds
        ]
        if not mine:
            continue
        size = units.format_size(mine[0][1].size_bytes)
        shares = {
            ("flexreduce, equal shares" if contender == EQUAL else contender): [
                100 * point.fraction(contender) if contender in point.seconds else None for _, point in mine
            ]
            for contender in (*NAMES, EQUAL)
        }
        labels = [label for label, _ in mine]
        found[name] = bar_chart(f"{title}, {size}", "% of the proven bound", labels, shares, line_at=100.0)
    if studies:
        title = "What a shared cloud hands out: over the fastest conventional one"
        lines = {name: _sorted(draws) for name, draws in studies.items()}
        found["placements"] = line_chart(title, "draws, from the least to the most", "times as fast", lines)
    return found


def _sorted(draws: Draws) -> list[tuple[float, float]]:
    gains = sorted(point.speedup for point, _ in draws)
    return [(float(number), gain) for number, gain in enumerate(gains, 1)]
