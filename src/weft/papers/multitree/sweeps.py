"""All-reduces over sizes on four networks, and over numbers of nodes with as much data for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.papers.claims import StudyCase
from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, RING, RING_2D, PaperMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NETWORKS: Final = (("torus", 64), ("mesh", 64), ("fattree", 64), ("bigraph", 64))
SIZES: Final = tuple(1 << power for power in range(15, 27))
"""32 KiB to 64 MiB, as in the paper."""

SIDES: Final = (4, 6, 8, 12, 16)
BYTES_PER_NODE: Final = 98304 * 4


@dataclass(frozen=True, slots=True)
class AllReduceCase(StudyCase):
    """One all-reduce."""

    derived = ("GBps",)

    network: str
    nodes: int
    algorithm: str
    size_bytes: int
    seconds: float

    @property
    def GBps(self) -> float:
        """Buffer size over time, in 10^9 bytes per second."""
        return self.size_bytes / self.seconds / 1e9


def over_sizes(
    networks: Sequence[tuple[str, int]], sizes: Sequence[int], report: Callable[[str], None]
) -> Iterator[AllReduceCase]:
    """Every algorithm of every network at every size."""
    for network, nodes in networks:
        report(f"{network} of {nodes}")
        machine = PaperMachine(network, nodes)
        for algorithm in machine.algorithms:
            for size in sizes:
                yield AllReduceCase(network, nodes, algorithm, size, machine.seconds(algorithm, size))


def over_nodes(sides: Sequence[int], report: Callable[[str], None]) -> Iterator[AllReduceCase]:
    """Tori of more and more nodes, with the same data for each node."""
    for side in sides:
        nodes = side * side
        report(f"torus of {nodes}")
        machine = PaperMachine("torus", nodes)
        for algorithm in (RING, RING_2D, MULTITREE, MULTITREE_MSG):
            size = BYTES_PER_NODE * nodes
            yield AllReduceCase("torus", nodes, algorithm, size, machine.seconds(algorithm, size))


def best(points: Sequence[AllReduceCase], network: str, size_bytes: int) -> AllReduceCase:
    """The fastest on a network at a size."""
    return min(_at(points, network, size_bytes), key=lambda point: point.seconds)


def ratio(points: Sequence[AllReduceCase], network: str, size_bytes: int, slower: str, faster: str) -> float:
    """Factor between two algorithms at one place."""
    by = {point.algorithm: point.seconds for point in _at(points, network, size_bytes)}
    return by[slower] / by[faster]


def _at(points: Sequence[AllReduceCase], network: str, size_bytes: int) -> list[AllReduceCase]:
    return [point for point in points if (point.network, point.size_bytes) == (network, size_bytes)]
