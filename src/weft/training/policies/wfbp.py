"""Wait-free backpropagation: every gradient is sent as soon as it is there, behind the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.training.fusion import fuse
from weft.training.policies.backbone import Backbone, of_groups, tensors, with_barrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
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
        As for `weft.training.fuse`; None fuses nothing, and sends each tensor alone.
    """
    if threshold_bytes is None:
        return behind_backward(layers, tensors(layers), iterations)
    return behind_backward(layers, of_groups(layers, fuse(layers, threshold_bytes)), iterations)


def behind_backward(layers: Sequence[Layer], buckets: Sequence[Bucket], iterations: int) -> Graph:
    """All-reduces of these buckets behind the backward pass; the next forward pass waits for all of them."""
    backbone = Backbone(layers, iterations)
    return with_barrier(backbone, lambda: backbone.all_backward("all_reduce", buckets))
