"""The form of DeAR's checkpoints: places of parameters, and the merging of all ranks' shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weft.errors import FormatError
from weft.torch.dear.sharding import SCALARS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.torch.dear.fusion_groups import Parameters


def find_places(parameters: Parameters, groups: Sequence[dict[str, Any]]) -> dict[int, int]:
    """Return the place of each parameter in a state as torch writes it, counted through all groups."""
    ordered = [one for group in groups for one in group["params"]]
    place = {one: number for number, one in enumerate(ordered)}
    return {number: place[one] for number, one in enumerate(parameters.tensors)}


def pack_groups(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return groups of parameters as torch writes them: with places instead of tensors."""
    packed, count = [], 0
    for group in groups:
        size = len(group["params"])
        packed.append({**group, "params": list(range(count, count + size))})
        count += size
    return packed


def merge_shares(
    checkpoints: Sequence[dict[str, Any]], parameters: Parameters, places: Mapping[int, int]
) -> dict[str, Any]:
    """Merge the results of `DeAR.state_dict` on all ranks, in mode ``parameters``, into a state in full.

    Parameters
    ----------
    checkpoints
        The checkpoints of all ranks, in any order.
    parameters
        The parameters that are trained.
    places
        The place of each of them in a state as torch writes it.

    Raises
    ------
    FormatError
        If ranks are missing, or they are of other parameters.
    """
    abouts = [checkpoint.get("weft", {}) for checkpoint in checkpoints]
    if any("cuts" not in about for about in abouts):
        raise FormatError("checkpoints", "a list is for the shares of mode 'parameters', one of every rank")
    ranks = sorted(about["rank"] for about in abouts)
    size = abouts[0]["size"]
    if ranks != list(range(size)):
        raise FormatError("checkpoints", f"they are of ranks {ranks}; expected 0 to {size - 1}, each once")
    state: dict[int, dict[str, Any]] = {}
    for checkpoint, about in zip(checkpoints, abouts, strict=True):
        for place, values in checkpoint["state"].items():
            number, first, last = about["cuts"][int(place)]
            if not 0 <= number < parameters.count or last > parameters.tensors[number].numel():
                raise FormatError("checkpoints", "they are of other parameters than this model's")
            whole = state.setdefault(places[number], {})
            for name, value in values.items():
                _put(whole, name, value, first, last, parameters.tensors[number])
    return {"state": state, "param_groups": checkpoints[0]["param_groups"]}


def _put(
    whole: dict[str, Any], name: str, value: Any, first: int, last: int, parameter: torch.nn.Parameter
) -> None:
    if isinstance(value, torch.Tensor) and name not in SCALARS:
        if value.numel() != last - first:
            raise FormatError("checkpoints", f"{name!r} has {value.numel()} elements, not {last - first}")
        if name not in whole:
            whole[name] = torch.zeros_like(parameter, dtype=value.dtype)
        whole[name].reshape(-1)[first:last] = value
    elif name in whole and float(whole[name]) != float(value):  # of tensors, which may be on several devices
        raise FormatError("checkpoints", f"they are of different steps: {name!r} differs between ranks")
    else:
        whole[name] = value
