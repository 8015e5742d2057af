"""What a model of training knows of a network: how large its layers are, and how long they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft import limits
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; a model is a tuple of them in the order of the forward pass.

    Parameters
    ----------
    name
        For people.
    size_bytes
        Of its gradients as they are sent; 0 for a layer without parameters.
    forward_s, backward_s
        Seconds that it computes in one iteration.

    Raises
    ------
    InputError
        If a size or a time cannot be.
    """

    name: str
    size_bytes: int
    forward_s: float
    backward_s: float

    def __post_init__(self) -> None:
        limits.check_text("the name of a layer", self.name, InputError, empty=True)
        if self.size_bytes < 0:
            msg = f"layer {self.name}: {self.size_bytes} bytes; a size is at least 0"
            raise InputError(msg)
        limits.check(f"bytes of layer {self.name}", self.size_bytes, limits.MAX_SIZE_BYTES)
        for what, seconds in (("forward", self.forward_s), ("backward", self.backward_s)):
            if not 0 <= seconds < math.inf:
                msg = f"layer {self.name}: {seconds} s of {what}; a time is at least 0 and finite"
                raise InputError(msg)


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise an `InputError` unless these can be the layers of a model."""
    if not layers:
        msg = "a model has at least one layer"
        raise InputError(msg)
    limits.check("layers", len(layers), limits.MAX_LAYERS)


def forward_seconds(layers: Sequence[Layer]) -> float:
    """Seconds of the whole forward pass."""
    return math.fsum(layer.forward_s for layer in layers)


def backward_seconds(layers: Sequence[Layer]) -> float:
    """Seconds of the whole backward pass."""
    return math.fsum(layer.backward_s for layer in layers)


def total_bytes(layers: Sequence[Layer]) -> int:
    """Bytes of all gradients."""
    return sum(layer.size_bytes for layer in layers)
