"""The checks of DeAR's arguments, and the numbers of the parameters, which all ranks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from weft.errors import InputError
from weft.torch.dear.fusion_groups import POLICIES, Parameters
from weft.torch.dear.sharding import ELEMENTWISE
from weft.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.torch.dear.hooks import HookedModule

MODES: Final = ("gradients", "parameters")


def check_choices(
    optimizer_class: Any, mode: str, policy: str, fusion: str | int | None
) -> type[torch.optim.Optimizer]:
    """Refuse arguments that cannot be used; return the class of the optimizer."""
    if isinstance(optimizer_class, torch.optim.Optimizer):
        msg = (
            f"give the class {type(optimizer_class).__name__} and its options, not an optimizer made of them"
        )
        raise InputError(msg)
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)):
        msg = f"expected the class of an optimizer, such as torch.optim.SGD, not {optimizer_class!r}"
        raise InputError(msg)
    if issubclass(optimizer_class, torch.optim.LBFGS | torch.optim.SparseAdam):
        msg = f"{optimizer_class.__name__} does not work parameter by parameter on dense gradients"
        raise InputError(msg)
    if mode not in MODES:
        msg = f"mode {mode!r} is unknown; expected {' or '.join(MODES)}"
        raise InputError(msg)
    if mode == "parameters" and not issubclass(optimizer_class, ELEMENTWISE):
        known = ", ".join(one.__name__ for one in ELEMENTWISE)
        msg = f"{optimizer_class.__name__} is not known to work element by element, as {known} do"
        raise InputError(f"{msg}; use mode='gradients'")
    if policy not in (*POLICIES, "auto"):
        msg = f"policy {policy!r} is unknown; expected auto, {' or '.join(POLICIES)}"
        raise InputError(msg)
    if mode == "parameters" and policy == "wfbp":
        msg = "policy 'wfbp' all-reduces gradients; it has no use for mode='parameters'"
        raise InputError(msg)
    if fusion is not None and parse_size(fusion) == 0:
        msg = f"fusion={fusion!r}: expected bytes, more than 0"
        raise InputError(msg)
    return optimizer_class


def check_model(model: Any) -> None:
    """Refuse an object that is not a model, or a model that sends gradients itself."""
    if not isinstance(model, torch.nn.Module):
        msg = f"expected the model first, then parameters or an optimizer class; got a {type(model).__name__}"
        raise InputError(msg)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        msg = (
            "the model is wrapped in DistributedDataParallel, which sends gradients itself; give model.module"
        )
        raise InputError(msg)


def number_parameters(
    model: torch.nn.Module, groups: Sequence[dict[str, Any]], modules: Sequence[HookedModule]
) -> tuple[Parameters, list[int]]:
    """Number the parameters that are trained, in the order of the model, and find the group of each.

    Raises
    ------
    InputError
        If a parameter is not the model's, or nothing is trained.
    """
    known = set(model.parameters())
    group_of = {one: number for number, group in enumerate(groups) for one in group["params"]}
    for one, number in group_of.items():
        if one not in known:
            msg = f"group {number} has a parameter of shape {tuple(one.shape)} that is not the model's"
            raise InputError(msg)
    module_of = {one: number for number, module in enumerate(modules) for one in module.own}
    found = [
        (name, one)
        for name, one in model.named_parameters()
        if one in group_of and one.requires_grad and one.numel()
    ]
    if not found:
        msg = "no parameter requires a gradient"
        raise InputError(msg)
    tensors = [one for _, one in found]
    parameters = Parameters(tensors, [name for name, _ in found], [module_of[one] for one in tensors])
    return parameters, [group_of[one] for one in tensors]
