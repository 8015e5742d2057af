"""Where DeAR is called from: gradients that become ready, and modules that are about to run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.dear.hooked_modules import HookedModule


class HookCallbacks(Protocol):
    """What hooks call."""

    def gradient_ready(self, number: int, /) -> None:
        """A parameter's gradient is complete in this backward pass."""

    def before_unit(self, unit: int, /) -> None:
        """A module is about to run."""

    def forward_ended(self, start: float, end: float, /) -> None:
        """The model has run."""

    def forward_began(self) -> None:
        """The model is about to run."""

    def synchronize(self) -> None:
        """Somebody is about to read parameters."""


class Hooks:
    """Hooks on a model, from now until `remove`.

    Parameters
    ----------
    model
        The whole model.
    parameters
        What is trained, by number.
    units
        Modules that wait.
    called
        What is called.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parameters: Sequence[torch.nn.Parameter],
        units: Sequence[HookedModule],
        called: HookCallbacks,
    ) -> None:
        self._called, self._began = called, 0.0
        # torch has no types for some of these.
        self._handles: list[Any] = [
            cast("Any", parameter).register_post_accumulate_grad_hook(_on_gradient(called, number))
            for number, parameter in enumerate(parameters)
        ]
        self._handles += (
            unit.module.register_forward_pre_hook(_before_unit(called, number), prepend=True)
            for number, unit in enumerate(units)
        )
        self._handles += (
            cast("Any", module).register_state_dict_pre_hook(lambda *_: called.synchronize())
            for module in model.modules()
        )
        # An update that is still to come would be made on top of what is loaded.
        self._handles += (
            cast("Any", module).register_load_state_dict_pre_hook(lambda *_: called.synchronize())
            for module in model.modules()
        )
        # What is compiled later must not try to compile these: it breaks its graph and calls them.
        begin, end = _left_alone(self._begin), _left_alone(self._end)
        self._handles.append(model.register_forward_pre_hook(begin, prepend=True))
        self._handles.append(model.register_forward_hook(end))

    def remove(self) -> None:
        """Take them off."""
        for handle in self._handles:
            handle.remove()

    def _begin(self, *_: Any) -> None:
        self._began = time.perf_counter()
        self._called.forward_began()

    def _end(self, *_: Any) -> None:
        self._called.forward_ended(self._began, time.perf_counter())


def _on_gradient(called: HookCallbacks, number: int) -> Callable[[torch.Tensor], None]:
    def ready(_: torch.Tensor) -> None:
        called.gradient_ready(number)

    return ready


def _before_unit(called: HookCallbacks, unit: int) -> Callable[..., None]:
    def before(*_: Any) -> None:
        called.before_unit(unit)

    return _left_alone(before)


def _left_alone(function: Callable[..., None]) -> Callable[..., None]:
    left: Callable[..., None] = cast("Any", torch.compiler.disable)(function)
    return left
