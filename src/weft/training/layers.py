"""What a model of training knows of a network: how large its layers are, and how long they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from weft import limits
from weft.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class LayerExchange:
    """An all-to-all between layers: what model-parallel embeddings do in DLRM.

    Forward, it starts when its layer's work is done, and layer number `needed_by` waits for it. Backward is
    the mirror image: it starts when backward of that layer is done, and its own layer's backward work waits
    for it.

    Parameters
    ----------
    size_bytes
        What each rank sends in one pass, its own part included.
    needed_by
        Number of the layer that waits, counted from 0 in the order of the forward pass.

    Raises
    ------
    InputError
        If either cannot be.
    """

    size_bytes: int
    needed_by: int

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.needed_by < 0:
            msg = f"an exchange of {self.size_bytes} bytes for layer {self.needed_by}: neither is below 0"
            raise InputError(msg)
        limits.check("bytes of an exchange", self.size_bytes, limits.MAX_SIZE_BYTES)


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
    tensors
        Bytes of each trainable tensor, in the order in which they are registered; none given means one of
        `size_bytes`.
    exchange
        An all-to-all after its forward work and before its backward work. Such a layer is spread over the
        ranks and has no gradients to add up: `size_bytes` is 0.
    weight_gradient_s
        Of `backward_s`, the seconds for the gradient of its weights, which may be computed before that of its
        input; None where the two are not told apart.
    tied_gradient_s
        Of `backward_s`, the seconds for the gradient of weights that are tied to the first layer, as the
        output of a language model is to its word embeddings. They are sent with that layer, the last of the
        backward pass, so that their gradient may be computed last as well.

    Raises
    ------
    InputError
        If a size or a time cannot be, or tensors are not what `size_bytes` says.
    """

    name: str
    size_bytes: int
    forward_s: float
    backward_s: float
    tensors: tuple[int, ...] = field(default=(), kw_only=True)
    exchange: LayerExchange | None = field(default=None, kw_only=True)
    weight_gradient_s: float | None = field(default=None, kw_only=True)
    tied_gradient_s: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        limits.check_text("the name of a layer", self.name, InputError, empty=True)
        if self.size_bytes < 0:
            raise InputError(f"layer {self.name}: {self.size_bytes} bytes; a size is at least 0")
        limits.check(f"bytes of layer {self.name}", self.size_bytes, limits.MAX_SIZE_BYTES)
        for what, seconds in (("forward", self.forward_s), ("backward", self.backward_s)):
            if not 0 <= seconds < math.inf:
                raise InputError(f"layer {self.name}: {seconds} s of {what}; a time is at least 0 and finite")
        if self.weight_gradient_s is not None and not 0 <= self.weight_gradient_s <= self.backward_s:
            msg = (
                f"{self.weight_gradient_s} s of {self.backward_s} s backward for the gradient of its weights"
            )
            raise InputError(f"layer {self.name}: {msg}; that is a part of it")
        if not 0 <= self.tied_gradient_s <= self.backward_s:
            msg = f"{self.tied_gradient_s} s of {self.backward_s} s backward for the gradient of tied weights"
            raise InputError(f"layer {self.name}: {msg}; that is a part of it")
        if min(self.tensors, default=0) < 0:
            msg = f"layer {self.name}: a tensor of {min(self.tensors)} bytes; a size is at least 0"
            raise InputError(msg)
        if self.tensors and sum(self.tensors) != self.size_bytes:
            msg = f"layer {self.name}: its tensors have {sum(self.tensors)} bytes and not {self.size_bytes}"
            raise InputError(msg)
        if self.exchange is not None and self.size_bytes:
            msg = f"layer {self.name}: {self.size_bytes} bytes of gradients and an exchange; only one can be"
            raise InputError(msg)

    @property
    def tensor_bytes(self) -> tuple[int, ...]:
        """Bytes of each trainable tensor; a layer that does not say is one, and none if it has no bytes."""
        return self.tensors or ((self.size_bytes,) if self.size_bytes else ())


def slow_down(layer: Layer, forward: float, backward: float) -> Layer:
    """The same layer, but its passes take so many times as long.

    Examples
    --------
    >>> slow_down(Layer("conv", 8, 1.0, 2.0, weight_gradient_s=0.5), 2.0, 3.0)
    Layer(name='conv', size_bytes=8, forward_s=2.0, backward_s=6.0, tensors=(), exchange=None, \
weight_gradient_s=1.5, tied_gradient_s=0.0)
    """
    weights = layer.weight_gradient_s
    return replace(
        layer,
        forward_s=layer.forward_s * forward,
        backward_s=layer.backward_s * backward,
        weight_gradient_s=None if weights is None else min(weights, layer.backward_s) * backward,
        tied_gradient_s=min(layer.tied_gradient_s, layer.backward_s) * backward,
    )


def with_tied_last(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The same model, but gradients of tied weights are computed at the end of the backward pass.

    What the other layers need is there earlier, and the first layer, which the weights belong to, waits for
    their gradient. All in all as much is computed as before.

    Raises
    ------
    InputError
        If no layer has any.

    Examples
    --------
    >>> model = [Layer("words", 8, 0.0, 0.5), Layer("output", 0, 1.0, 2.0, tied_gradient_s=1.0)]
    >>> [layer.backward_s for layer in with_tied_last(model)]
    [1.5, 1.0]
    """
    check_layers(layers)
    late_s = math.fsum(layer.tied_gradient_s for layer in layers[1:])
    if not late_s:
        msg = "no layer says how long the gradient of weights tied to the first layer takes (tied_gradient_s)"
        raise InputError(f"{msg}, so there is nothing to compute last; leave this option out")
    earlier = (
        replace(layer, backward_s=layer.backward_s - layer.tied_gradient_s, tied_gradient_s=0.0)
        for layer in layers[1:]
    )
    return (replace(layers[0], backward_s=layers[0].backward_s + late_s), *earlier)


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise an `InputError` unless these can be the layers of a model."""
    if not layers:
        raise InputError("a model has at least one layer")
    limits.check("layers", len(layers), limits.MAX_LAYERS)
    for number, layer in enumerate(layers):
        if layer.exchange is not None and not number < layer.exchange.needed_by < len(layers):
            msg = (
                f"layer {number} ({layer.name}): its exchange is needed by layer {layer.exchange.needed_by}; "
                f"expected a later layer, {number + 1} to {len(layers) - 1}"
            )
            raise InputError(msg)


def forward_seconds(layers: Sequence[Layer]) -> float:
    """Seconds of the whole forward pass."""
    return math.fsum(layer.forward_s for layer in layers)


def backward_seconds(layers: Sequence[Layer]) -> float:
    """Seconds of the whole backward pass."""
    return math.fsum(layer.backward_s for layer in layers)


def total_bytes(layers: Sequence[Layer]) -> int:
    """Bytes of all gradients."""
    return sum(layer.size_bytes for layer in layers)
