"""MG-WFBP: merges gradients where latency saved is more than the waiting that it costs (Shi et al., 2019).

The rule is that of the authors' code. From the last tensor to the first: the open group takes in the next
tensor if that is ready before the group would have been sent, and either the group has not begun by then, or
waiting for the tensor costs less than the latency of an all-reduce. What is smaller than 8,192 elements is
always merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import InputError
from weft.training.policies.backbone import merged, ready_times, tensors
from weft.training.policies.wfbp import behind_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.costs import Costs
    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer], *, iterations: int = 4, costs: Costs, smallest_bytes: int = 4 * 8192
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2.
    costs
        What the rule believes of all-reduces; the latency is what one of a single byte takes.
    smallest_bytes
        Groups with less than this are merged in any case; by default 8,192 elements of fp32.
    """
    return behind_backward(layers, merge(layers, costs, smallest_bytes), iterations)


def merge(layers: Sequence[Layer], costs: Costs, smallest_bytes: int) -> list[Bucket]:
    """Merge tensors into buckets.

    Examples
    --------
    >>> from weft.training import Layer, Linear
    >>> model = [Layer(str(number), 1000, 0.0, backward) for number, backward in enumerate((9.0, 0.1, 1.0))]
    >>> [bucket.layers for bucket in merge(model, Linear.ring(2, 0.5, 1e-3), 0)]
    [(2, 1), (0,)]
    """
    if smallest_bytes < 0:
        raise InputError(f"merging below {smallest_bytes} bytes: give at least 0, which merges by time alone")
    ready = ready_times(layers)
    latency_s = costs.all_reduce(1)
    closed: list[Bucket] = []
    filling: list[Bucket] = []
    free_s = 0.0
    for tensor in tensors(layers):
        if filling:
            group = merged(filling)
            starts_s = max(free_s, ready[group.last])
            ends_s = starts_s + costs.all_reduce(group.size_bytes)
            ready_s = ready[tensor.last]
            pays = ready_s < ends_s and (starts_s > ready_s or ready_s - starts_s < latency_s)
            if not pays and group.size_bytes >= smallest_bytes:
                closed.append(group)
                filling, free_s = [], ends_s
        filling.append(tensor)
    return [*closed, merged(filling)] if filling else closed
