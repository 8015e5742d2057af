"""Hooks on the model: gradients that become ready, and modules that wait for parameters before they run.

A module that has parameters of its own waits for all parameters below it, because some modules use those of
their children without calling them, as `torch.nn.MultiheadAttention` does. Parameters in a container that is
never called, such as a list of parameters, are waited for by the module that has the container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch

from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.torch.dear.optimizer import DeAR

_CONTAINERS: Final = (
    torch.nn.ModuleDict,
    torch.nn.ModuleList,
    torch.nn.ParameterDict,
    torch.nn.ParameterList,
)
"""Modules that are never called."""


class HookedModule:
    """A module that waits for its parameters before it runs.

    Parameters
    ----------
    module
        The module.
    name
        Its name in the model.

    Attributes
    ----------
    own
        The parameters that it has itself, or through a container that is never called.
    below
        All parameters in it and below it.
    """

    __slots__ = ("below", "module", "name", "own")

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module, self.name = module, name
        self.own: list[torch.nn.Parameter] = []
        self.below = list(module.parameters())


def find_hooked_modules(model: torch.nn.Module) -> list[HookedModule]:
    """Return the modules that wait, in the order of the model.

    Raises
    ------
    InputError
        If a module is compiled already: a hook that is added now would never run.
    """
    found: dict[str, HookedModule] = {}
    known: set[torch.nn.Parameter] = set()
    names = dict(model.named_modules())
    for name, module in names.items():
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            what = f"module {name!r}" if name else "the model"
            raise InputError(f"{what} is compiled already; make DeAR first, then compile, block by block")
        own = [parameter for parameter in module._parameters.values() if parameter is not None]
        caller = name
        while caller and isinstance(names[caller], _CONTAINERS):
            caller = caller.rpartition(".")[0]
        if own:
            hooked = found.setdefault(caller, HookedModule(names[caller], caller))
            hooked.own += [parameter for parameter in own if parameter not in known]
            known.update(own)
    order = {name: position for position, name in enumerate(names)}
    return sorted(found.values(), key=lambda hooked: order[hooked.name])


class Hooks:
    """The hooks of DeAR on a model, from now until `remove`.

    Parameters
    ----------
    model
        The whole model.
    parameters
        The parameters that are trained, by number.
    modules
        The modules that wait.
    optimizer
        The optimizer whose methods the hooks call.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parameters: Sequence[torch.nn.Parameter],
        modules: Sequence[HookedModule],
        optimizer: DeAR,
    ) -> None:
        # No bound method: a deep copy of the model would copy the optimizer.
        def synchronize(*_: Any) -> None:
            optimizer.synchronize()

        # torch has no types for some of these.
        self._handles: list[Any] = [
            cast("Any", parameter).register_post_accumulate_grad_hook(_on_gradient(optimizer, number))
            for number, parameter in enumerate(parameters)
        ]
        self._handles += (
            hooked.module.register_forward_pre_hook(_before_module(optimizer, number), prepend=True)
            for number, hooked in enumerate(modules)
        )
        for module in model.modules():
            untyped = cast("Any", module)
            self._handles.append(untyped.register_state_dict_pre_hook(synchronize))
            # An update that is still to come would be applied on top of the loaded state.
            self._handles.append(untyped.register_load_state_dict_pre_hook(synchronize))
        begin = _not_compiled(lambda *_: optimizer.forward_began())
        end = _not_compiled(lambda *_: optimizer.forward_ended())
        self._handles.append(model.register_forward_pre_hook(begin, prepend=True))
        self._handles.append(model.register_forward_hook(end))

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()


def _on_gradient(optimizer: DeAR, number: int) -> Callable[[torch.Tensor], None]:
    def ready(_: torch.Tensor) -> None:
        optimizer.gradient_ready(number)

    return ready


def _before_module(optimizer: DeAR, number: int) -> Callable[..., None]:
    def before(*_: Any) -> None:
        optimizer.before_module(number)

    return _not_compiled(before)


def _not_compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that torch.compile does not try to compile: it breaks its graph and calls it."""
    hook: Callable[..., None] = cast("Any", torch.compiler.disable)(function)
    return hook
