"""PyTorch's DistributedDataParallel: buckets of 25 MiB, the first of 1 MiB, behind the backward pass.

The rule is that of `torch.distributed` after its first iteration: tensors join a bucket, in the order in
which their gradients are there, until that has at least its size, so a bucket may have more. Gradients of a
layer are taken to be there in the reverse of the order in which they are registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import InputError
from weft.training.policies.backbone import MEBIBYTE, merged, tensors
from weft.training.policies.wfbp import behind_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.training.layers import Layer
    from weft.training.policies.backbone import Bucket
    from weft.training.task_graph import Graph


def build(
    layers: Sequence[Layer],
    *,
    iterations: int = 4,
    bucket_bytes: int = 25 * MEBIBYTE,
    first_bucket_bytes: int = MEBIBYTE,
) -> Graph:
    """Build the graph.

    Parameters
    ----------
    layers
        In the order of the forward pass.
    iterations
        How many, at least 2.
    bucket_bytes, first_bucket_bytes
        Size at which a bucket is closed; the first one goes early. By default those of torch.
    """
    return behind_backward(layers, buckets(layers, bucket_bytes, first_bucket_bytes), iterations)


def buckets(layers: Sequence[Layer], bucket_bytes: int, first_bucket_bytes: int) -> list[Bucket]:
    """Put tensors into buckets.

    Examples
    --------
    >>> from weft.training import Layer
    >>> model = [Layer("a", 40, 0.0, 0.0, tensors=(30, 10)), Layer("b", 9, 0.0, 0.0)]
    >>> [bucket.size_bytes for bucket in buckets(model, 20, 5)]
    [9, 40]
    """
    if min(bucket_bytes, first_bucket_bytes) < 1:
        msg = f"buckets of {bucket_bytes} bytes, the first of {first_bucket_bytes}: give at least 1"
        raise InputError(msg)
    closed: list[Bucket] = []
    filling: list[Bucket] = []
    for tensor in tensors(layers):
        filling.append(tensor)
        limit = bucket_bytes if closed else first_bucket_bytes
        if sum(part.size_bytes for part in filling) >= limit:
            closed.append(merged(filling))
            filling = []
    return [*closed, merged(filling)] if filling else closed
