"""The step of the user's optimizer on some of its parameters, with options as they were at another time.

`Replicas` is the update of gradients mode: every rank updates every parameter, with averages that all ranks
have. The update of parameters mode is in `weft.torch.dear.sharding`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from weft.torch.dear.gradient_bucket import GradientBucket

Captured: TypeAlias = "list[dict[str, Any]]"
"""The options of each group of parameters: learning rate, momentum and so on."""

Part: TypeAlias = "list[tuple[int, list[torch.nn.Parameter]]]"
"""Some parameters, by the number of their group of parameters."""


def capture(groups: Sequence[dict[str, Any]]) -> Captured:
    """Return the options as they are now: a learning-rate schedule may change them before they are used."""
    return [
        {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name not in ("params", "param_names")
        }
        for group in groups
    ]


def update(optimizer: torch.optim.Optimizer, part: Part, captured: Captured) -> dict[int, dict[str, Any]]:
    """Take the step of some parameters alone.

    Returns
    -------
    dict
        The options that the optimizer itself changed, by group: some count their steps there.
    """
    saved = optimizer.param_groups
    optimizer.param_groups = [{**captured[number], "params": parameters} for number, parameters in part]
    try:
        _step_of(type(optimizer))(optimizer)
        changed = {}
        for (number, _), group in zip(part, optimizer.param_groups, strict=True):
            before = captured[number]
            names = [name for name in group if name != "params"]
            changed[number] = {name: group[name] for name in names if group[name] is not before.get(name)}
    finally:
        optimizer.param_groups = saved
    return changed


def _step_of(kind: type[torch.optim.Optimizer]) -> Callable[[torch.optim.Optimizer], Any]:
    """Return the step without the hooks and profiling that torch adds: those are added to DeAR's own step."""
    step: Callable[..., Any] = kind.step
    return getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step


class Replicas:
    """The update of all parameters on every rank.

    Parameters
    ----------
    optimizer
        The user's optimizer.
    group_of
        The group of parameters that each parameter belongs to.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, group_of: Sequence[int]) -> None:
        self._optimizer, self._group_of = optimizer, group_of

    def update(
        self, buckets: Sequence[GradientBucket], captured: Captured, unused: Collection[int]
    ) -> dict[int, dict[str, Any]]:
        """Update the parameters of some buckets; return the options that the optimizer changed."""
        part: dict[int, list[torch.nn.Parameter]] = defaultdict(list)
        held = []
        group_of = self._group_of
        for bucket in buckets:
            for slot in bucket.slots:
                number = slot.number
                if number in unused:
                    continue
                parameter, view = slot.parameter, slot.view
                if (grad := parameter.grad) is not view:
                    held.append((parameter, grad))
                    parameter.grad = view
                part[group_of[number]].append(parameter)
        changed = update(self._optimizer, list(part.items()), captured) if part else {}
        for parameter, grad in held:  # None where the user has cleared it meanwhile
            parameter.grad = grad
        return changed
