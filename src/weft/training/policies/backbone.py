"""What every policy shares: layers that compute one after the other, exchanges between them, and buckets.

A layer with an exchange (the embeddings of DLRM) sends an all-to-all when its forward work is done, and the
layer that needs the result waits for it; backward goes the other way round. A layer always waits for these,
so they go before gradients wherever both wait.

Nothing is charged for the optimizer's update: it reads and writes memory for a time that is the same under
every policy.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from weft.errors import InputError
from weft.training.layers import check_layers
from weft.training.task_graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.training.fusion import Groups
    from weft.training.layers import Layer

MEBIBYTE: Final = 1 << 20
EXCHANGES_FIRST: Final = -1
"""Priority of exchanges; that of gradients is at least 0."""

MOST_ITERATIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that travel together: their bytes, and the layers that they are of."""

    size_bytes: int
    layers: tuple[int, ...]

    @property
    def last(self) -> int:
        """The layer whose backward work completes the bucket: the first one of the model."""
        return min(self.layers)


class Backbone:
    """The forward and backward chains of some iterations, in a graph that a policy completes.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many the graph will have.
    blocking
        Whether computing stops during an exchange.
    """

    def __init__(self, layers: Sequence[Layer], iterations: int, *, blocking: bool = False) -> None:
        check_layers(layers)
        if not 2 <= iterations <= MOST_ITERATIONS:
            raise InputError(f"{iterations} iterations: a steady state needs 2 to {MOST_ITERATIONS}")
        self.layers, self.iterations = layers, iterations
        self.graph = Graph()
        self.computed: tuple[int, ...] = ()
        """What the next computation waits for in any case: the one before it."""
        self._blocking = blocking
        self._arrivals: defaultdict[int, list[int]] = defaultdict(list)
        self._senders: defaultdict[int, list[int]] = defaultdict(list)
        for index, layer in enumerate(layers):
            if layer.exchange is not None:
                self._senders[layer.exchange.needed_by].append(index)

    def forward(self, index: int, after: Iterable[int] = ()) -> int:
        """Compute a layer forward, next and after these; returns the number of the task."""
        layer = self.layers[index]
        task = self._compute(index, "forward", layer.forward_s, after)
        if layer.exchange is not None:
            self._exchange(index, layer.exchange.needed_by, task)
        return task

    def backward(self, index: int, after: Iterable[int] = ()) -> int:
        """Compute a layer backward, next and after these; returns the number of the task."""
        task = self._compute(index, "backward", self.layers[index].backward_s, after)
        for sender in self._senders.get(index, ()):
            self._exchange(sender, sender, task)
        return task

    def gradients(self, index: int, *, exchanging: bool = True) -> int:
        """Compute the gradient of a layer's weights, then that of its input; returns the first task.

        Where the two are not told apart they are one task. With `exchanging`, what layers sent forward to
        this one goes back after the second.
        """
        layer = self.layers[index]
        first_s = layer.backward_s if layer.weight_gradient_s is None else layer.weight_gradient_s
        weights = inputs = self._compute(index, "backward", first_s, ())
        if layer.backward_s > first_s:
            inputs = self._compute(index, "backward", layer.backward_s - first_s, ())
        for sender in self._senders.get(index, ()) if exchanging else ():
            self._exchange(sender, sender, inputs)
        return weights

    def all_forward(self, after: Iterable[int] = ()) -> None:
        """Compute all layers forward, the first of them after these."""
        for index in range(len(self.layers)):
            self.forward(index, after if index == 0 else ())

    def all_backward(
        self, collective: str, buckets: Sequence[Bucket], delays_s: Sequence[float] = ()
    ) -> list[int]:
        """Compute all layers backward, and send each bucket once it is complete; returns the collectives.

        With `delays_s` each bucket waits so long before it is sent.
        """
        complete: defaultdict[int, list[int]] = defaultdict(list)
        for number, bucket in enumerate(buckets):
            complete[bucket.last].append(number)
        sent = []
        for index in range(len(self.layers) - 1, -1, -1):
            task = self.backward(index)
            for number in complete[index]:
                ready = task
                if delays_s:
                    ready = self.graph.delay("cycle", delays_s[number], (task,), group=number)
                size = buckets[number].size_bytes
                sent.append(self.graph.collective(collective, size, (ready,), group=number))
        return sent

    def gather_all(self, buckets: Sequence[Bucket], after: Iterable[int]) -> list[int]:
        """All-gather every bucket after these, the one that the forward pass needs first at first."""
        return [
            self.graph.collective("all_gather", bucket.size_bytes, after, group=number)
            for number, bucket in reversed(list(enumerate(buckets)))
        ]

    def step(self, after: Iterable[int]) -> int:
        """Wait for the backward pass and for these: the optimizer's step, for which nothing is charged."""
        return self.graph.delay("step", 0.0, (*self.computed, *after), phase="update")

    def _compute(self, index: int, phase: str, seconds: float, after: Iterable[int]) -> int:
        before = (*self.computed, *after, *self._arrivals.pop(index, ()))
        task = self.graph.compute(self.layers[index].name, seconds, before, phase=phase, layer=index)
        self.computed = (task,)
        return task

    def _exchange(self, layer: int, needed_by: int, after: int) -> None:
        exchange = self.layers[layer].exchange
        assert exchange is not None
        task = self.graph.collective(
            "all_to_all", exchange.size_bytes, (after,), layer=layer, priority=EXCHANGES_FIRST
        )
        self._arrivals[needed_by].append(task)
        if self._blocking:
            self.computed = (*self.computed, task)


def with_barrier(backbone: Backbone, backward: Callable[[], Sequence[int]]) -> Graph:
    """Build iterations whose forward pass waits for all that the one before has sent.

    Parameters
    ----------
    backbone
        Has no iteration yet.
    backward
        Adds a backward pass and its collectives, which it returns.
    """
    after: tuple[int, ...] = ()
    for _ in range(backbone.iterations):
        backbone.graph.begin()
        backbone.all_forward(after)
        after = (backbone.step(backward()),)
    backbone.graph.finish(after)
    return backbone.graph


def ready_times(layers: Sequence[Layer]) -> list[float]:
    """Seconds from the start of the backward pass until the gradients of each layer are there."""
    passed = list(accumulate(layer.backward_s for layer in reversed(layers)))
    return passed[::-1]


def tensors(layers: Sequence[Layer]) -> list[Bucket]:
    """Each tensor as a bucket of its own, in the order in which gradients are there: the last first."""
    return [
        Bucket(size, (index,))
        for index in range(len(layers) - 1, -1, -1)
        for size in reversed(layers[index].tensor_bytes)
        if size
    ]


def of_groups(layers: Sequence[Layer], groups: Groups) -> list[Bucket]:
    """One bucket for each group of layers."""
    return [Bucket(sum(layers[index].size_bytes for index in group), group) for group in groups]


def merged(parts: Sequence[Bucket]) -> Bucket:
    """Make one bucket of several."""
    return Bucket(
        sum(part.size_bytes for part in parts),
        tuple(dict.fromkeys(index for part in parts for index in part.layers)),
    )
