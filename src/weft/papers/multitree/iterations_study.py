"""The seven networks of the paper on an 8x8 torus: all-reduces of whole models, and iterations with them.

An iteration is computed by the authors' accelerator, cycle for cycle, with one sample for each processing
element. Then all gradients are reduced at once, or each layer's as soon as it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.papers.claims import StudyCase
from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, RING, RING_2D
from weft.training import find_device, load_workload, policies
from weft.training.costs import Interpolated
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.papers.multitree.machines import PaperMachine

NETWORKS: Final = ("alexnet", "alphagozero", "fasterrcnn", "googlenet", "ncf", "resnet50", "transformer")
CONVOLUTIONAL: Final = ("alexnet", "alphagozero", "fasterrcnn", "googlenet", "resnet50")
"""What the paper calls compute-heavy; the other two send the most."""

COMPARED: Final = (RING, RING_2D, MULTITREE, MULTITREE_MSG)
DEVICE: Final = "multitree-array"
_SMALLEST: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class Trained(StudyCase):
    """One network by one algorithm.

    Parameters
    ----------
    network, algorithm
        Which.
    size_bytes
        Of all gradients.
    computing_s, reducing_s
        Of an iteration, and of one all-reduce of all gradients.
    overlapped_s
        Of an iteration that reduces each layer's gradients while it computes the next.
    """

    derived = ("iteration_s", "share")

    network: str
    algorithm: str
    size_bytes: int
    computing_s: float
    reducing_s: float
    overlapped_s: float

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration that computes first and reduces after."""
        return self.computing_s + self.reducing_s

    @property
    def share(self) -> float:
        """Of such an iteration, what is spent reducing."""
        return self.reducing_s / self.iteration_s


class AllReduceTimes(Interpolated):
    """Times of one algorithm on a machine; the halves of an all-reduce are mirror images, and take half."""

    def __init__(self, machine: PaperMachine, algorithm: str) -> None:
        super().__init__(_SMALLEST)
        self._machine, self._algorithm = machine, algorithm

    def measure(self, collective: str, size_bytes: int) -> float:
        """Simulate the all-reduce packet by packet."""
        whole = self._machine.seconds(self._algorithm, size_bytes)
        return whole if collective == "all_reduce" else whole / 2


def train(machine: PaperMachine, networks: Sequence[str], report: Callable[[str], None]) -> Iterator[Trained]:
    """Every network by every algorithm."""
    device = find_device(DEVICE)
    models = {name: load_workload(f"multitree-{name}").layers(device) for name in networks}
    for algorithm in COMPARED:
        report(f"layers by {algorithm}")
        curve = AllReduceTimes(machine, algorithm)
        for name, layers in models.items():
            report(f"{name} by {algorithm}")
            size = sum(layer.size_bytes for layer in layers)
            computing = sum(layer.forward_s + layer.backward_s for layer in layers)
            graph = policies.find("wfbp").build(layers, iterations=3)
            yield Trained(
                name, algorithm, size, computing, machine.seconds(algorithm, size), run(graph, curve).seconds
            )


def speedups(
    rows: Sequence[Trained], faster: str, slower: str, quantity: str = "reducing_s"
) -> dict[str, float]:
    """Factor by network between two algorithms."""
    by = {(row.network, row.algorithm): getattr(row, quantity) for row in rows}
    names = dict.fromkeys(row.network for row in rows)
    return {name: by[name, slower] / by[name, faster] for name in names}
