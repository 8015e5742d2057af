"""MultiTree (Huang et al., ISCA 2021): spanning trees that share every link, and an interface made for them.

Four studies, all on the engine for packets (docs/packets.md): how near it comes to the authors' own simulator
(`reference`), the paper's seven networks on an 8x8 torus (`training`), sizes on four networks and numbers of
nodes (`sweeps`), and what the interface's table takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from weft.packets import make_tables
from weft.papers.multitree import iterations_study, reference, rows, sweeps
from weft.papers.multitree.charts import draw
from weft.papers.multitree.machines import MULTITREE, RING, RING_2D, RING_2D_WHOLE, PaperMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings

WHOLE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Parameters
    ----------
    most_kib
        Largest of the all-reduces that are compared with the authors' simulator.
    networks, fine_packets
        That are trained, and how many packets are simulated of each at most.
    sides
        Of the tori for weak scaling.
    swept, sizes
        Networks and sizes.
    """

    most_kib: int = 2048
    networks: tuple[str, ...] = iterations_study.NETWORKS
    fine_packets: int = 1 << 22
    sides: tuple[int, ...] = sweeps.SIDES
    swept: tuple[tuple[str, int], ...] = sweeps.NETWORKS
    sizes: tuple[int, ...] = sweeps.SIZES


_TABLES: Final = Effort(most_kib=0, networks=(), sides=(), swept=())
NEEDED: Final = {
    **dict.fromkeys(rows.TRAINED_CLAIMS, replace(_TABLES, networks=iterations_study.NETWORKS)),
    **dict.fromkeys(rows.SCALING_CLAIMS, replace(_TABLES, sides=sweeps.SIDES[-1:])),
    **{
        f"multitree-{name}-sizes": replace(_TABLES, swept=((name, nodes),))
        for name, nodes in sweeps.NETWORKS
        if name in rows.GRIDS
    },
    **dict.fromkeys(rows.TABLE_CLAIMS, _TABLES),
}
"""What of the studies suffices for each claim."""


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return (
        reference.rows_up_to(effort.most_kib)
        + (4 * (1 + len(effort.networks)) if effort.networks else 0)
        + len(effort.sides)
        + len(effort.swept)
    )


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the comparison, the training study and the sweeps."""
    compared = list(reference.compare(tell, effort.most_kib))
    yield from rows.reference_rows(compared)
    machine = PaperMachine("torus", 64, fine_packets=effort.fine_packets)
    trained = list(iterations_study.train(machine, effort.networks, tell)) if effort.networks else []
    if trained:
        both = machine.seconds(RING_2D_WHOLE, WHOLE_BYTES) / machine.seconds(RING_2D, WHOLE_BYTES)
        yield from rows.trained_rows(trained, both)
    scaled = list(sweeps.over_nodes(effort.sides, tell))
    yield from rows.scaling_rows(scaled)
    swept = list(sweeps.over_sizes(effort.swept, effort.sizes, tell))
    yield from rows.size_rows(swept)
    tables = make_tables(machine.schedule(MULTITREE), 64 << 20, ports=4)
    idle = PaperMachine("torus", 16).run(RING, 32 << 10).link_busy_ps
    yield from rows.table_rows(tables, float((idle > 0).mean()))
    data: dict[str, Any] = {
        "reference": [row.to_dict() for row in compared],
        "training": [row.to_dict() for row in trained],
        "scaling": [point.to_dict() for point in scaled],
        "sizes": [point.to_dict() for point in swept],
        "table": {"entries": tables.entries, "entry_bits": tables.entry_bits(), "bits": tables.table_bits},
    }
    return data, lambda: draw(compared, trained, scaled, swept)
