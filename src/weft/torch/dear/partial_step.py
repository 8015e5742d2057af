"""Running any optimizer on some of its parameters, with options as they were at another time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Captured: TypeAlias = "list[dict[str, Any]]"
"""Options of each group of parameters: learning rate, momentum and so on."""

Part: TypeAlias = "list[tuple[int, list[torch.nn.Parameter]]]"
"""Some parameters, by the number of their group of parameters."""


def capture(groups: Sequence[dict[str, Any]]) -> Captured:
    """Options as they are now: a schedule may change them before they are used."""
    return [
        {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name not in ("params", "param_names")
        }
        for group in groups
    ]


def update(inner: torch.optim.Optimizer, part: Part, captured: Captured) -> dict[int, dict[str, Any]]:
    """Do the step of some parameters alone.

    Returns
    -------
    dict
        Options that the optimizer itself changed, by group: some count their steps there.
    """
    saved = inner.param_groups
    inner.param_groups = [{**captured[number], "params": parameters} for number, parameters in part]
    try:
        _step_of(type(inner))(inner)
        changed = {}
        for (number, _), group in zip(part, inner.param_groups, strict=True):
            before = captured[number]
            news = {
                name: value
                for name, value in group.items()
                if name != "params" and value is not before.get(name)
            }
            if news:
                changed[number] = news
    finally:
        inner.param_groups = saved
    return changed


def _step_of(kind: type[torch.optim.Optimizer]) -> Callable[[torch.optim.Optimizer], Any]:
    """The step itself: what torch puts around it, for hooks and its profiler, is around DeAR's own."""
    step: Callable[..., Any] = kind.step
    return getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step
