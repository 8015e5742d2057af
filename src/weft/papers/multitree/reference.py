"""Total cycles of the cycle-level simulator that MultiTree's authors published, and ours beside them.

1 cycle is 1 ns, and a total lasts until the network is quiet, the last credit included. Totals differ from
run to run, because its event queues are unordered sets: MultiTree with messages on the torus of 16 nodes took
9,501 to 9,694 cycles for 128 KiB, 16,717 to 17,570 for 256 KiB and 28,906 to 31,642 for 512 KiB; with packets
30,549 to 37,965 for 512 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    from collections.abc import Callable, Iterator, Sequence

_GRID: Final = (RING, DOUBLE_TREE, RING_2D, MULTITREE, MULTITREE_MSG)
_FATTREE: Final = (RING, DOUBLE_TREE, MULTITREE, MULTITREE_MSG)
_BIGRAPH: Final = (RING, HDRM, MULTITREE, MULTITREE_MSG)

_TOTALS: Final[dict[tuple[str, int, int], tuple[tuple[str, ...], tuple[int | None, ...]]]] = {
    ("torus", 16, 32): (_GRID, (9344, 10175, 5860, 3508, 3272)),
    ("torus", 16, 64): (_GRID, (13664, 16840, 10804, 6531, 5800)),
    ("torus", 16, 128): (_GRID, (22304, 29464, 16916, 11103, 9501)),
    ("torus", 16, 256): (_GRID, (39584, 55417, 26516, 21128, 16824)),
    ("torus", 16, 512): (_GRID, (74144, 116167, 36588, 35016, 28913)),
    ("torus", 16, 1024): (_GRID, (None, None, 72178, 69019, 45903)),
    ("torus", 36, 288): (_GRID, (51844, None, 42956, 24624, 20551)),
    ("fattree", 64, 128): (_FATTREE, (95975, 40023, 22151, 20733)),
    ("torus", 16, 2048): (_GRID, (None, None, 136886, None, None)),
    ("torus", 64, 128): (_GRID, (None, None, None, 12342, 11018)),
    ("torus", 64, 256): (_GRID, (None, None, 42724, None, None)),
    ("torus", 64, 512): (_GRID, (None, None, None, 40361, 31569)),
    ("mesh", 16, 32): (_GRID, (9345, 10737, 7986, 5368, 5313)),
    ("mesh", 16, 64): (_GRID, (13665, 17905, 14062, 9813, 8953)),
    ("mesh", 16, 128): (_GRID, (22305, 32432, 25440, 17571, 15809)),
    ("mesh", 16, 256): (_GRID, (39585, 62100, 42734, 32264, 28687)),
    ("mesh", 16, 512): (_GRID, (None, None, None, 61213, 52995)),
    ("mesh", 64, 128): (_GRID, (None, None, None, 19461, 18208)),
    ("bigraph", 32, 32): (_BIGRAPH, (33539, 9249, 5350, 5131)),
    ("bigraph", 32, 64): (_BIGRAPH, (37755, 13705, 9571, 9091)),
    ("bigraph", 32, 128): (_BIGRAPH, (46683, 22633, 17973, 17056)),
    ("bigraph", 32, 256): (_BIGRAPH, (64539, 40489, 34869, 32947)),
    ("bigraph", 64, 128): (_BIGRAPH, (None, 23846, 18283, 17347)),
}


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
    for (network, nodes, kib), (algorithms, totals) in _TOTALS.items():
        if kib > most_kib:
            continue
        report(f"{network} of {nodes}, {kib} KiB")
        machine = machines.setdefault((network, nodes), PaperMachine(network, nodes))
        for algorithm, theirs in zip(algorithms, totals, strict=True):
            if theirs is not None:
                found = machine.run(algorithm, kib << 10)
                yield Compared(
                    network,
                    nodes,
                    kib,
                    algorithm,
                    theirs,
                    times(algorithm) * found.total_cycles,
                    found.cpu_seconds,
                )


def rows_up_to(most_kib: int) -> int:
    """How many networks and sizes there are up to a size."""
    return sum(kib <= most_kib for _, _, kib in _TOTALS)


def worst(rows: Sequence[Compared]) -> Compared:
    """The row that deviates most."""
    return max(rows, key=lambda row: abs(row.deviation))
