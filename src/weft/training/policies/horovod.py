"""Horovod's tensor fusion: a background thread wakes once per cycle and fuses what is ready.

The defaults are 128 MiB and a cycle of 1 ms, those of its code since release 0.21.0 (its change log: before,
64 MB and 5 ms; ``docs/tensor-fusion.rst`` still has 64 MB). Tensors are fused in the order in which they are
ready, up to the limit; a tensor is never cut. When the thread wakes is not tied to training: here its cycles
are counted from the start of the backward pass. The ranks' agreement on what is ready is not charged.

The thread sees a tensor when the host hands it over. On a CPU that is when its gradient is there, the default
here; a host that drives a GPU runs ahead of it, so that more is fused in a cycle: `host_share` says how far.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

from weft.errors import InputError
from weft.training.policies.backbone import MEBIBYTE, Backbone, merged, ready_times, tensors, with_barrier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer],
    *,
    iterations: int = 4,
    threshold_bytes: int = 128 * MEBIBYTE,
    cycle_s: float = 1e-3,
    host_share: float = 1.0,
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2.
    threshold_bytes
        Up to how much is fused; tensors that are larger go alone.
    cycle_s
        Seconds from one waking to the next; 0 fuses only what is ready at the same moment.
    host_share
        Share of the backward pass after which the host has handed over everything, 0 to 1.
    """
    if threshold_bytes < 1 or not 0 <= cycle_s < math.inf:
        msg = f"a threshold of {threshold_bytes} bytes and a cycle of {cycle_s} s: give at least 1 and 0"
        raise InputError(msg)
    if not 0 <= host_share <= 1:
        raise InputError(f"a host that takes {host_share} of the backward pass: expected a share from 0 to 1")
    backbone = Backbone(layers, iterations)
    fused = list(fusions(layers, threshold_bytes, cycle_s, host_share))
    buckets, delays_s = [bucket for bucket, _ in fused], [delay_s for _, delay_s in fused]
    return with_barrier(backbone, lambda: backbone.all_backward("all_reduce", buckets, delays_s))


def fusions(
    layers: Sequence[Layer], threshold_bytes: int, cycle_s: float, host_share: float = 1.0
) -> Iterator[tuple[Bucket, float]]:
    """Give each fusion, and the seconds from its last gradient until the thread wakes.

    Examples
    --------
    >>> from weft.training import Layer
    >>> model = [Layer(str(number), 10, 0.0, 0.4) for number in range(4)]
    >>> [(bucket.layers, round(delay, 9)) for bucket, delay in fusions(model, 100, 1.0)]
    [((3, 2), 0.2), ((1, 0), 0.4)]
    """
    ready = ready_times(layers)

    def waking(tensor: Bucket) -> float:
        seen_s = host_share * ready[tensor.last]
        return math.ceil(seen_s / cycle_s) * cycle_s if cycle_s else seen_s

    for wakes, together in groupby(tensors(layers), key=waking):
        parts: list[Bucket] = []
        for tensor in together:
            if parts and sum(part.size_bytes for part in parts) + tensor.size_bytes > threshold_bytes:
                yield _fusion(parts, wakes, ready)
                parts = []
            parts.append(tensor)
        yield _fusion(parts, wakes, ready)


def _fusion(parts: Sequence[Bucket], wakes_s: float, ready: Sequence[float]) -> tuple[Bucket, float]:
    bucket = merged(parts)
    return bucket, max(0.0, wakes_s - ready[bucket.last])
