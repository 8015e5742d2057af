"""Total cycles of the cycle-level simulator that MultiTree's authors published, and ours beside them.

1 cycle is 1 ns, and a total lasts until the network is quiet, the last credit included. Totals differ from
run to run, because its event queues are unordered sets: MultiTree with messages on the torus of 16 nodes took
9,501 to 9,694 cycles for 128 KiB, 16,717 to 17,570 for 256 KiB and 28,906 to 31,642 for 512 KiB; with packets
30,549 to 37,965 for 512 KiB.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.papers.claims import StudyCase
from weft.papers.multitree.machines import (
    DOUBLE_TREE,
    HDRM,
    MULTITREE,
    MULTITREE_MSG,
    RING,
    RING_2D,
    PaperMachine,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALGORITHMS: Final = (RING, DOUBLE_TREE, RING_2D, HDRM, MULTITREE, MULTITREE_MSG)


def authors_totals() -> list[dict[str, str]]:
    """Rows of ``totals.csv``: a network, its nodes, KiB, and cycles by algorithm; empty where none ran."""
    with Path(__file__).with_name("totals.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, slots=True)
class Compared(StudyCase):
    """One all-reduce in both simulators."""

    derived = ("deviation",)

    network: str
    nodes: int
    kib: int
    algorithm: str
    theirs: int
    ours: int
    cpu_seconds: float

    @property
    def deviation(self) -> float:
        """How much more cycles ours takes, as a share."""
        return self.ours / self.theirs - 1


def compare(report: Callable[[str], None], most_kib: int = 2048) -> Iterator[Compared]:
    """Run every row up to a size, packet by packet."""
    machines: dict[tuple[str, int], PaperMachine] = {}
    for row in authors_totals():
        network, nodes, kib = row["network"], int(row["nodes"]), int(row["KiB"])
        if kib > most_kib:
            continue
        report(f"{network} of {nodes}, {kib} KiB")
        machine = machines.setdefault((network, nodes), PaperMachine(network, nodes))
        for algorithm in ALGORITHMS:
            if not row[algorithm]:
                continue
            found = machine.run(algorithm, kib << 10)
            theirs, ours = int(row[algorithm]), times(algorithm) * found.total_cycles
            yield Compared(network, nodes, kib, algorithm, theirs, ours, found.cpu_seconds)


def rows_up_to(most_kib: int) -> int:
    """How many networks and sizes there are up to a size."""
    return sum(int(row["KiB"]) <= most_kib for row in authors_totals())
