"""MultiTree (Huang et al., ISCA 2021): spanning trees that share every link, and an interface made for them.

Four studies, all on the engine for packets (docs/packets.md): how near it comes to the authors' own simulator
(`reference`), the paper's seven networks on an 8x8 torus (`training`), sizes on four networks and numbers of
nodes (`sweeps`), and what the interface's table takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.packets import make_tables
from weft.papers.multitree import iterations_study, reference, sweeps
from weft.papers.multitree.charts import draw
from weft.papers.multitree.machines import MULTITREE, RING, RING_2D, RING_2D_WHOLE, PaperMachine
from weft.papers.multitree.rows import (
    all_reduce_rows,
    overlap_rows,
    reference_rows,
    scaling_rows,
    share_rows,
    size_rows,
    table_rows,
    training_rows,
    whole_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.papers.claims import Findings

WHOLE_BYTES: Final = 4 << 20
TITLE: Final = "Communication algorithm-architecture co-design for distributed deep learning"
REFERENCE: Final = "J. Huang et al., ISCA 2021"
ASSUMPTIONS: Final = (
    (
        "of the paper the abstract's numbers are certain; those of its evaluation are from a reading note. "
        "Parameters, trees, baselines and run options are those of the simulator that the authors published"
    ),
    (
        "links carry 16 GB/s after 150 ns; a flit has 16 bytes, a packet 256 and a head; routers take 3 "
        "cycles, switches 4; 4 virtual channels of 318 flits; a queue of 48 packets and 80 flits (318 on "
        "switches)"
    ),
    (
        "a message goes to the lowest interface that is free, and an interface is free once its packets are "
        "queued: so most messages of a rank leave through its first port, one behind the other. That is how "
        "their program works, and why its steps take longer than a lockstep would"
    ),
    (
        "an arbiter serves inputs in turn and ignores the priority of steps, as theirs does in effect; a "
        "router passes one flit a cycle from each input"
    ),
    (
        "of 2D-ring one dimension is simulated and counts twice, as in their program; run whole, the second "
        "dimension begins out of step and takes longer, which a row of its own tells"
    ),
    "times of all-reduces are of the last sum, with sums counted; the authors plot communication alone",
    (
        "buffers beyond some million packets follow the line through two smaller ones: on the 8x8 torus that "
        "was within 5 % of the simulation at 64 MiB"
    ),
    (
        "computing is the authors' accelerator, cycle for cycle (docs/workloads.md), one sample for each of "
        "16 elements; layers overlap by wait-free back-propagation on one channel, with times between "
        "simulated sizes"
    ),
    "the paper's fat-tree, BiGraph and mesh are taken at 64 nodes; which of several it plots is not known",
)


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


def count_steps(effort: Effort) -> int:
    """How many steps `study` reports."""
    return (
        reference.rows_up_to(effort.most_kib)
        + 4 * (1 + len(effort.networks))
        + len(effort.sides)
        + len(effort.swept)
    )


def study(effort: Effort, tell: Callable[[str], None]) -> Findings:
    """Run the comparison, the training study and the sweeps."""
    compared = list(reference.compare(tell, effort.most_kib))
    machine = PaperMachine("torus", 64, fine_packets=effort.fine_packets)
    trained = list(iterations_study.train(machine, effort.networks, tell))
    scaled = list(sweeps.over_nodes(effort.sides, tell))
    swept = list(sweeps.over_sizes(effort.swept, effort.sizes, tell))
    tables = make_tables(machine.schedule(MULTITREE), 64 << 20, ports=4)
    idle = PaperMachine("torus", 16).run(RING, 32 << 10).link_busy_ps
    rows = (
        *reference_rows(compared),
        *all_reduce_rows(trained),
        whole_row(machine.seconds(RING_2D_WHOLE, WHOLE_BYTES) / machine.seconds(RING_2D, WHOLE_BYTES)),
        *share_rows(trained),
        *training_rows(trained),
        *overlap_rows(trained),
        *scaling_rows(scaled),
        *size_rows(swept),
        *table_rows(tables, float((idle > 0).mean())),
    )
    data: dict[str, Any] = {
        "reference": [row.to_dict() for row in compared],
        "training": [row.to_dict() for row in trained],
        "scaling": [point.to_dict() for point in scaled],
        "sizes": [point.to_dict() for point in swept],
        "table": {"entries": tables.entries, "entry_bits": tables.entry_bits(), "bits": tables.table_bits},
    }
    return rows, data, draw(compared, trained, scaled, swept)
