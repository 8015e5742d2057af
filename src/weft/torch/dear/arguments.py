"""The checks of DeAR's arguments, and the numbers of the parameters, which all ranks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from weft.errors import InputError
from weft.torch.dear.fusion_plan import POLICIES, Parameters
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
    problem = _find_class_problem(optimizer_class, mode) or _find_choice_problem(mode, policy, fusion)
    if problem is not None:
        raise InputError(problem)
    found: type[torch.optim.Optimizer] = optimizer_class
    return found


def _find_class_problem(given: Any, mode: str) -> str | None:
    if isinstance(given, torch.optim.Optimizer):
        return f"give the class {type(given).__name__} and its options, not an optimizer made of them"
    if not (isinstance(given, type) and issubclass(given, torch.optim.Optimizer)):
        return f"expected the class of an optimizer, such as torch.optim.SGD, not {given!r}"
    if issubclass(given, torch.optim.LBFGS | torch.optim.SparseAdam):
        return f"{given.__name__} does not work parameter by parameter on dense gradients"
    if mode == "parameters" and not issubclass(given, ELEMENTWISE):
        known = ", ".join(one.__name__ for one in ELEMENTWISE)
        what = f"{given.__name__} is not known to work element by element, as {known} do"
        return f"{what}; use mode='gradients'"
    return None


def _find_choice_problem(mode: str, policy: str, fusion: str | int | None) -> str | None:
    if mode not in MODES:
        return f"mode {mode!r} is unknown; expected {' or '.join(MODES)}"
    if policy not in (*POLICIES, "auto"):
        return f"policy {policy!r} is unknown; expected auto, {' or '.join(POLICIES)}"
    if mode == "parameters" and policy == "wfbp":
        return "policy 'wfbp' all-reduces gradients; it has no use for mode='parameters'"
    if fusion is not None and parse_size(fusion) == 0:
        return f"fusion={fusion!r}: expected bytes, more than 0"
    return None


def check_model(model: Any) -> None:
    """Refuse an object that is not a model, or a model that sends gradients itself."""
    if not isinstance(model, torch.nn.Module):
        msg = f"expected the model first, then parameters or an optimizer class; got a {type(model).__name__}"
        raise InputError(msg)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        msg = "the model is wrapped in DistributedDataParallel, which sends gradients itself"
        raise InputError(f"{msg}; give model.module")


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
    given = {name: one for name, one in model.named_parameters() if one in group_of}
    found = {name: one for name, one in given.items() if one.requires_grad and one.numel()}
    if not found:
        raise InputError("no parameter requires a gradient")
    tensors = list(found.values())
    parameters = Parameters(tensors, list(found), [module_of[one] for one in tensors])
    return parameters, [group_of[one] for one in tensors]
