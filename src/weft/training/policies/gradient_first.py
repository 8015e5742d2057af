"""The training loop of ASTRA-sim 1.0, by authors of ACE: gradients of weights first, first layers first.

Backward computes the gradient of a layer's weights, sends it, and then computes the gradient of its input
while that is under way. There is no barrier: forward of a layer waits for that layer's own gradients, and
where several wait, those of the first layers go first. An exchange between layers goes before all of them.

With `lookup_ahead` the loop is that which hides the embeddings of DLRM: the lookup of the next iteration
and its exchange happen beside computing, as soon as the vectors of this one are used up, and so does the
update of the tables, for which no forward pass waits. A lookup therefore misses the last update before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft import limits
from weft.errors import InputError
from weft.training.policies.backbone import EXCHANGES_FIRST, MEBIBYTE, Backbone
from weft.training.policies.bytescheduler import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer],
    *,
    iterations: int = 8,
    partition_bytes: int = MEBIBYTE,
    lookup_ahead: bool = False,
    lookup_slowdown: float = 1.0,
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2; one reaches into the next, so it takes a few until times repeat.
    partition_bytes
        Largest part of a gradient; tensors that are smaller go whole.
    lookup_ahead
        Whether layers with an exchange work beside the others, an iteration ahead.
    lookup_slowdown
        How many times as long these then take as alone: they have a part of the memory bandwidth only.
    """
    if partition_bytes < 1:
        raise InputError(f"parts of {partition_bytes} bytes: give at least 1")
    if not 1 <= lookup_slowdown < float("inf"):
        raise InputError(f"lookups that take {lookup_slowdown} times as long: give at least 1")
    backbone = Backbone(layers, iterations)
    count = sum(-(-tensor // partition_bytes) for layer in layers for tensor in layer.tensor_bytes)
    limits.check("tasks of a graph", count * iterations, limits.MAX_TASKS)
    beside = _Beside(backbone, lookup_slowdown) if lookup_ahead else None
    order = [index for index, layer in enumerate(layers) if not (lookup_ahead and layer.exchange)]
    sent: dict[int, list[int]] = {}
    for _ in range(iterations):
        backbone.graph.begin()
        for index in order:
            arrived = beside.arrive(index) if beside else []
            backbone.forward(index, [*sent.get(index, ()), *arrived])
            if beside:
                beside.look_up(index)
        for index in reversed(order):
            weights = backbone.gradients(index, exchanging=not lookup_ahead)
            sent[index] = [
                backbone.graph.collective(
                    "all_reduce", size, (weights,), layer=index, group=index, priority=index
                )
                for size in parts(layers[index], partition_bytes)
            ]
            if beside:
                beside.update(index)
    backbone.graph.finish([*backbone.computed, *(task for tasks in sent.values() for task in tasks)])
    return backbone.graph


class _Beside:
    """Layers with an exchange that work beside the others, an iteration ahead of them."""

    def __init__(self, backbone: Backbone, slowdown: float) -> None:
        self._backbone, self._slowdown = backbone, slowdown
        self._senders: dict[int, list[int]] = {}
        for index, layer in enumerate(backbone.layers):
            if layer.exchange is not None:
                self._senders.setdefault(layer.exchange.needed_by, []).append(index)
        self._arrivals: dict[int, list[int]] = {}
        self._updates: dict[int, int] = {}

    def arrive(self, index: int) -> list[int]:
        """What forward of a layer waits for: the exchanges of its lookups; the first are made now."""
        if index in self._senders and index not in self._arrivals:
            self._send(index, ())
        return self._arrivals.pop(index, [])

    def look_up(self, index: int) -> None:
        """Look up for the next iteration, once forward of this layer has used what was there."""
        if index in self._senders:
            self._send(index, self._backbone.computed)

    def update(self, index: int) -> None:
        """Send the gradients of the vectors that a layer used back, and update the tables."""
        graph = self._backbone.graph
        for sender in self._senders.get(index, ()):
            arrived = self._exchange(sender, self._backbone.computed)
            layer = self._backbone.layers[sender]
            seconds = layer.backward_s * self._slowdown
            self._updates[sender] = graph.delay(layer.name, seconds, (arrived,), phase="update")

    def _send(self, index: int, after: Sequence[int]) -> None:
        arrivals = []
        for sender in self._senders[index]:
            layer = self._backbone.layers[sender]
            # The tables are one thing at a time: a lookup waits for the update that began before it.
            before = [*after, *([self._updates[sender]] if sender in self._updates else [])]
            seconds = layer.forward_s * self._slowdown
            done = self._backbone.graph.delay(layer.name, seconds, before, phase="lookup")
            arrivals.append(self._exchange(sender, (done,)))
        self._arrivals[index] = arrivals

    def _exchange(self, sender: int, after: Sequence[int]) -> int:
        exchange = self._backbone.layers[sender].exchange
        assert exchange is not None
        return self._backbone.graph.collective(
            "all_to_all", exchange.size_bytes, after, layer=sender, priority=EXCHANGES_FIRST
        )
