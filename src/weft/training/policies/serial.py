"""No overlap: the backward pass, then every all-reduce, then the next forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.training.fusion import fuse
from weft.training.layers import total_bytes
from weft.training.policies.backbone import Backbone, of_groups, with_barrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.task_graph import Graph


def build(layers: Sequence[Layer], *, iterations: int = 4, threshold_bytes: int | None = None) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2.
    threshold_bytes
        As for `weft.training.fuse`; None sends everything in one piece.
    """
    if threshold_bytes is None:
        threshold_bytes = max(1, total_bytes(layers))
    buckets = of_groups(layers, fuse(layers, threshold_bytes))
    backbone = Backbone(layers, iterations, blocking=True)

    def backward() -> list[int]:
        backbone.all_backward("all_reduce", ())
        return [
            backbone.graph.collective("all_reduce", bucket.size_bytes, backbone.computed, group=number)
            for number, bucket in enumerate(buckets)
        ]

    return with_barrier(backbone, backward)
