"""The seven networks of the paper on an 8x8 torus: all-reduces of whole models, and iterations with them.

An iteration is computed by the authors' accelerator, cycle for cycle, with one sample for each processing
element. Then all gradients are reduced at once, or each layer's as soon as it is there.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft.papers.claims import StudyCase
from weft.papers.multitree.machines import MULTITREE, MULTITREE_MSG, RING, RING_2D
from weft.training import find_device, load_workload, policies
from weft.training.single_channel import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.papers.multitree.machines import PaperMachine

NETWORKS: Final = (
    "alexnet",
    "alphagozero",
    "fasterrcnn",
    "googlenet",
    "ncf",
    "resnet50",
    "transformer",
)
CONVOLUTIONAL: Final = ("alexnet", "alphagozero", "fasterrcnn", "googlenet", "resnet50")
"""What the paper calls compute-heavy; the other two send the most."""

COMPARED: Final = (RING, RING_2D, MULTITREE, MULTITREE_MSG)
DEVICE: Final = "multitree-array"
_SMALLEST: Final = 16 << 10
_STEP: Final = 4


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
        """Computing first, reducing after."""
        return self.computing_s + self.reducing_s

    @property
    def share(self) -> float:
        """Of such an iteration, what is spent reducing."""
        return self.reducing_s / self.iteration_s


class AllReduceTimes:
    """Times of one algorithm over sizes: simulated at powers of four, with lines between them.

    The halves of an all-reduce take half each: their schedules are mirror images.
    """

    def __init__(self, machine: PaperMachine, algorithm: str, most_bytes: int) -> None:
        sizes = [_SMALLEST]
        while sizes[-1] < most_bytes:
            sizes.append(sizes[-1] * _STEP)
        self.sizes = sizes
        self.seconds = [machine.seconds(algorithm, size) for size in sizes]

    def all_reduce(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all sums."""
        if size_bytes == 0:
            return 0.0
        place = bisect_left(self.sizes, size_bytes)
        if place == 0:
            return self.seconds[0]
        low, high = self.sizes[place - 1], self.sizes[place]
        first, last = self.seconds[place - 1], self.seconds[place]
        return first + (last - first) * (size_bytes - low) / (high - low)

    def reduce_scatter(self, size_bytes: int, /) -> float:
        """Seconds until every rank has the sums of its part."""
        return self.all_reduce(size_bytes) / 2

    def all_gather(self, size_bytes: int, /) -> float:
        """Seconds until every rank has all parts."""
        return self.all_reduce(size_bytes) / 2


def train(machine: PaperMachine, networks: Sequence[str], report: Callable[[str], None]) -> Iterator[Trained]:
    """Every network by every algorithm."""
    device = find_device(DEVICE)
    models = {name: load_workload(f"multitree-{name}").layers(device) for name in networks}
    largest = max(layer.size_bytes for layers in models.values() for layer in layers)
    for algorithm in COMPARED:
        report(f"layers by {algorithm}")
        curve = AllReduceTimes(machine, algorithm, largest)
        for name, layers in models.items():
            report(f"{name} by {algorithm}")
            size = sum(layer.size_bytes for layer in layers)
            computing = sum(layer.forward_s + layer.backward_s for layer in layers)
            graph = policies.find("wfbp").build(layers, iterations=3)
            yield Trained(
                name,
                algorithm,
                size,
                computing,
                machine.seconds(algorithm, size),
                run(graph, curve).seconds,
            )


def speedups(
    rows: Sequence[Trained], faster: str, slower: str, quantity: str = "reducing_s"
) -> dict[str, float]:
    """Factor by network between two algorithms."""
    by = {(row.network, row.algorithm): getattr(row, quantity) for row in rows}
    names = dict.fromkeys(row.network for row in rows)
    return {name: by[name, slower] / by[name, faster] for name in names}
