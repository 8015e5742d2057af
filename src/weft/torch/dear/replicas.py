"""Gradients mode: every rank updates every parameter, with averages that all of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.torch.dear.partial_step import update

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import torch

    from weft.torch.dear.gradient_bucket import GradientBucket
    from weft.torch.dear.partial_step import Captured


class Replicas:
    """All parameters, and the optimizer for them.

    Parameters
    ----------
    inner
        The optimizer.
    group_of
        Group of parameters that each parameter belongs to.
    """

    def __init__(self, inner: torch.optim.Optimizer, group_of: Sequence[int]) -> None:
        self._inner, self._group_of = inner, group_of

    def update(
        self, buckets: Sequence[GradientBucket], captured: Captured, unused: Collection[int]
    ) -> dict[int, dict[str, Any]]:
        """Update the parameters of some buckets; returns options that the optimizer changed."""
        part: dict[int, list[torch.nn.Parameter]] = {}
        held = []
        for bucket in buckets:
            for slot in bucket.slots:
                if slot.number not in unused:
                    parameter = slot.parameter
                    held.append((parameter, parameter.grad))
                    parameter.grad = slot.view
                    part.setdefault(self._group_of[slot.number], []).append(parameter)
        changed = update(self._inner, list(part.items()), captured) if part else {}
        for parameter, grad in held:  # None where the user has cleared it meanwhile
            parameter.grad = grad
        return changed
