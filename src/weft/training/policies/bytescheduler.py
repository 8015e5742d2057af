"""ByteScheduler: gradients are cut into parts, and those that the next forward pass needs first go first.

There is no barrier at the step: a layer's forward work waits only for its own gradients, and those of others
may still be on their way (Peng et al., 2019). What has begun is not broken off. The default size of a part is
that of its code, a million elements of fp32. Its credit, how much may be under way at a time, is one part
here, because the channel takes one collective at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft import limits
from weft.errors import InputError
from weft.training.policies.backbone import Backbone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.training.layers import Layer
    from weft.training.task_graph import Graph


def build(layers: Sequence[Layer], *, iterations: int = 8, partition_bytes: int = 4_000_000) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2; one reaches into the next, so it takes a few until times repeat.
    partition_bytes
        Largest part; tensors that are smaller go whole.
    """
    if partition_bytes < 1:
        raise InputError(f"parts of {partition_bytes} bytes: give at least 1")
    backbone = Backbone(layers, iterations)
    count = sum(-(-tensor // partition_bytes) for layer in layers for tensor in layer.tensor_bytes)
    limits.check("tasks of a graph", count * iterations, limits.MAX_TASKS)
    sent: dict[int, list[int]] = {}
    for _ in range(iterations):
        backbone.graph.begin()
        for index in range(len(layers)):
            backbone.forward(index, sent.get(index, ()))
        for index in range(len(layers) - 1, -1, -1):
            task = backbone.backward(index)
            sent[index] = [
                backbone.graph.collective(
                    "all_reduce", size, (task,), layer=index, group=index, priority=index
                )
                for size in parts(layers[index], partition_bytes)
            ]
    backbone.graph.finish([*backbone.computed, *(task for tasks in sent.values() for task in tasks)])
    return backbone.graph


def parts(layer: Layer, partition_bytes: int) -> Iterator[int]:
    """Give the bytes of each part.

    Examples
    --------
    >>> from weft.training import Layer
    >>> list(parts(Layer("a", 11, 0.0, 0.0, tensors=(9, 2)), 4))
    [4, 4, 1, 2]
    """
    for tensor in layer.tensor_bytes:
        for start in range(0, tensor, partition_bytes):
            yield min(partition_bytes, tensor - start)
