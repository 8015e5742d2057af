"""Fusion plans: which parameters share a bucket, and the order of the buckets.

`Parameters.plan` fuses parameters by a threshold in bytes, which `Tuner` (tuner.py) chooses; the rule is
`weft.training.fusion.fuse`, which the simulated policies use as well. A `FusionPlan` must be the same on
every rank. It is made from the measurements of rank 0, which it sends to all ranks, and its digest is
compared before it is used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from weft.errors import FormatError
from weft.training import Layer, fuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

POLICIES = ("dear", "wfbp")


@dataclass(frozen=True)
class FusionGroup:
    """The parameters of one bucket.

    Parameters
    ----------
    members
        The numbers of the parameters, in the order in which their gradients become ready.
    names
        Their names in the model.
    size_bytes
        The size of all of them.
    """

    members: tuple[int, ...]
    names: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True)
class FusionPlan:
    """The fusion groups in the order in which they are reduced, and how they are sent.

    Parameters
    ----------
    groups
        The groups; every parameter that is trained is in one of them.
    gathering
        The numbers of the groups in the order in which the forward pass needs them.
    policy
        ``dear``: reduce-scatter during the backward pass, all-gather during the next forward pass. ``wfbp``:
        all-reduce during the backward pass.
    threshold_bytes
        The size from which a group is full.
    """

    groups: tuple[FusionGroup, ...]
    gathering: tuple[int, ...]
    policy: str
    threshold_bytes: int

    @property
    def digest(self) -> str:
        """A hash of the plan."""
        return hashlib.sha256(msgspec.json.encode(self.encode())).hexdigest()

    def encode(self) -> dict[str, Any]:
        """Return the plan as plain data, for checkpoints."""
        return {
            "groups": [list(group.members) for group in self.groups],
            "gathering": list(self.gathering),
            "policy": self.policy,
            "threshold_bytes": self.threshold_bytes,
        }


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[list[int]]
    gathering: list[int]
    policy: str
    threshold_bytes: int


def decode_plan(data: Any, parameters: Parameters) -> FusionPlan:
    """Return the plan of a checkpoint, for these parameters.

    Raises
    ------
    FormatError
        If it is not a plan, or one for other parameters.
    """
    try:
        stored = msgspec.convert(data, _Stored)
    except msgspec.ValidationError as error:
        raise FormatError("checkpoint", f"its fusion plan cannot be read: {error}") from error
    members = sorted(member for group in stored.groups for member in group)
    if members != list(range(parameters.count)) or stored.policy not in POLICIES:
        msg = "its fusion plan is for other parameters; make the optimizer for the model that was saved"
        raise FormatError("checkpoint", msg)
    if sorted(stored.gathering) != list(range(len(stored.groups))):
        raise FormatError("checkpoint", "its fusion plan gathers other groups than it reduces")
    for together in stored.groups:
        if len({(parameters.tensors[one].dtype, parameters.tensors[one].device) for one in together}) > 1:
            raise FormatError("checkpoint", "its fusion plan is for parameters of other types")
    groups = tuple(parameters.group(members) for members in stored.groups)
    return FusionPlan(groups, tuple(stored.gathering), stored.policy, stored.threshold_bytes)


class Parameters:
    """The parameters that are trained, by number: the same numbers on every rank.

    Parameters
    ----------
    tensors, names
        In the order of the model.
    modules
        Number of the module that each belongs to, as the forward pass calls modules.
    """

    def __init__(
        self, tensors: Sequence[torch.nn.Parameter], names: Sequence[str], modules: Sequence[int]
    ) -> None:
        self.tensors, self.names, self.modules = tuple(tensors), tuple(names), tuple(modules)
        self.sizes = tuple(tensor.numel() * tensor.element_size() for tensor in tensors)

    @property
    def signature(self) -> str:
        """The names, shapes and types, which must be the same on every rank."""
        named = zip(self.names, self.tensors, strict=True)
        return repr([(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in named])

    @property
    def count(self) -> int:
        """The number of parameters."""
        return len(self.tensors)

    def group(self, members: Sequence[int]) -> FusionGroup:
        """Return a fusion group of some of the parameters."""
        names = tuple(self.names[member] for member in members)
        return FusionGroup(tuple(members), names, self.size_of(members))

    def plan(
        self,
        layers: Sequence[tuple[str, Sequence[int]]],
        needed: Sequence[int],
        policy: str,
        threshold_bytes: int,
    ) -> FusionPlan:
        """Make the plan that fuses layers until their size reaches the threshold.

        Parameters
        ----------
        layers
            The name and the parameters of each layer, from the one whose gradients become ready last to the
            one whose gradients are ready first. Parameters that differ in type or device get different
            buckets all the same.
        needed
            The position of each layer in the forward pass.
        """
        sized = [Layer(name, self.size_of(members), 0.0, 0.0) for name, members in layers]
        found: list[tuple[int, FusionGroup]] = []
        for together in fuse(sized, threshold_bytes):
            by_kind: dict[Any, list[int]] = {}
            for layer in together:
                for member in reversed(layers[layer][1]):
                    tensor = self.tensors[member]
                    by_kind.setdefault((tensor.dtype, tensor.device), []).append(member)
            first = min(needed[layer] for layer in together)
            found += ((first, self.group(members)) for members in by_kind.values())
        gathering = sorted(range(len(found)), key=lambda number: (found[number][0], -number))
        return FusionPlan(tuple(group for _, group in found), tuple(gathering), policy, threshold_bytes)

    def size_of(self, members: Sequence[int]) -> int:
        """Return the size of some of the parameters in bytes."""
        return sum(self.sizes[member] for member in members)
