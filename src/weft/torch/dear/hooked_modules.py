"""Which modules wait for which parameters before they run.

A module that has parameters of its own waits for all parameters below it: some modules use those of their
children without calling them, as `torch.nn.MultiheadAttention` does. What lies in a list of parameters, which
is never called, is waited for by the module that has the list.
"""

from __future__ import annotations

import torch

from weft.errors import InputError

_NEVER_CALLED = (
    torch.nn.ModuleDict,
    torch.nn.ModuleList,
    torch.nn.ParameterDict,
    torch.nn.ParameterList,
)


class HookedModule:
    """A module that is called, and what it waits for.

    Parameters
    ----------
    module
        The module.
    name
        In the model.
    own
        Parameters that it has itself, or through a list that is never called.
    below
        All parameters in it and below it.
    """

    __slots__ = ("below", "module", "name", "own")

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module, self.name = module, name
        self.own: list[torch.nn.Parameter] = []
        self.below = list(module.parameters())


def find_units(model: torch.nn.Module) -> list[HookedModule]:
    """Modules that wait, in the order of the model.

    Raises
    ------
    InputError
        If a module is compiled already: what is put before its forward pass now would never run.
    """
    found: dict[torch.nn.Module, HookedModule] = {}
    known: set[torch.nn.Parameter] = set()
    names: dict[str, torch.nn.Module] = dict(model.named_modules())
    parents = _parents(names)
    for name, module in names.items():
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            what = f"module {name!r}" if name else "the model"
            msg = f"{what} is compiled already; make DeAR first, then compile, block by block"
            raise InputError(msg)
        own = [parameter for parameter in module._parameters.values() if parameter is not None]
        caller = name
        while isinstance(names[caller], _NEVER_CALLED) and caller in parents:
            caller = parents[caller]
        if own:
            unit = found.setdefault(names[caller], HookedModule(names[caller], caller))
            unit.own += [parameter for parameter in own if parameter not in known]
            known.update(own)
    order = {module: position for position, module in enumerate(names.values())}
    return sorted(found.values(), key=lambda unit: order[unit.module])


def _parents(names: dict[str, torch.nn.Module]) -> dict[str, str]:
    """Name of the module above each."""
    return {name: name.rpartition(".")[0] for name in names if name}
