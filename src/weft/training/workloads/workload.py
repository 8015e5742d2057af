"""A model as a list of operators, and how that becomes the layers of a model of training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from weft import limits
from weft.errors import InputError
from weft.notebook_display import ShortRepr
from weft.training.layers import Layer, LayerExchange
from weft.training.workloads.operators import ELEMENT_BYTES, Operator

if TYPE_CHECKING:
    from weft.training.devices import OperatorTimer


class KeptActivations(NamedTuple):
    """What the forward pass of one sample keeps in memory for the backward pass.

    `elements` are numbers in the format of the training, `fixed_bytes` come to these in any format (masks of
    one byte, outputs in fp32), and `source` says how they were counted.
    """

    elements: int
    fixed_bytes: int
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class Workload(ShortRepr):
    """A model to train.

    Parameters
    ----------
    name, summary
        For people.
    operators
        In the order of the forward pass.
    batch
        Samples per rank and iteration, unless a job sets another number.
    source
        Where the shapes and the batch are from.
    kept
        What each sample keeps for the backward pass; None where that was not counted.

    Raises
    ------
    InputError
        If there is no operator with parameters, or one is exchanged for an operator that is not there.
    """

    name: str
    summary: str
    operators: tuple[Operator, ...]
    batch: int
    source: str
    kept: KeptActivations | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not any(operator.starts_layer for operator in self.operators):
            raise InputError(f"workload {self.name}: no operator has parameters; there is nothing to train")
        names = {operator.name for operator in self.operators}
        for operator in self.operators:
            needed_by = operator.exchange[1] if operator.exchange else operator.name
            if needed_by not in names:
                msg = f"workload {self.name}: {operator.name} is exchanged for {needed_by}, which it lacks"
                raise InputError(msg)

    @property
    def parameters(self) -> int:
        """Trainable numbers that all ranks share."""
        return sum(sum(operator.tensors) for operator in self.operators)

    @property
    def tensors(self) -> int:
        """How many trainable tensors all ranks share."""
        return sum(len(operator.tensors) for operator in self.operators)

    def modules(self) -> list[list[Operator]]:
        """Divide the operators into layers.

        A layer is a module with parameters and what follows it without any: activations, pooling, attention's
        products. What comes before the first belongs to it.
        """
        found: list[list[Operator]] = []
        waiting: list[Operator] = []
        for operator in self.operators:
            if operator.starts_layer:
                found.append([*waiting, operator])
                waiting = []
            elif operator.with_next or not found:
                waiting.append(operator)
            else:
                found[-1].append(operator)
        found[-1].extend(waiting)
        return found

    def layers(
        self, device: OperatorTimer, batch: int | None = None, dtype: str | None = None
    ) -> tuple[Layer, ...]:
        """Layers with the times that a device takes, in the order of the forward pass.

        Parameters
        ----------
        device
            Of `weft.training.devices`.
        batch
            Samples per rank; by default the workload's own.
        dtype
            Number format of activations, weights and gradients; by default the device's first.

        Raises
        ------
        InputError
            If the batch is empty, or the device does not compute in this format.

        Examples
        --------
        >>> from weft.training.devices import find_device
        >>> from weft.training.workloads import load_workload
        >>> layers = load_workload("resnet50").layers(find_device("v100"))
        >>> len(layers), layers[0].name, layers[-1].tensors
        (107, 'conv1', (8192000, 4000))
        """
        batch = self.batch if batch is None else batch
        if batch < 1:
            raise InputError(f"workload {self.name}: a batch of {batch}; it has at least one sample")
        limits.check(f"samples of a batch of {self.name}", batch, limits.MAX_BATCH)
        dtype = device.dtypes[0] if dtype is None else dtype
        if dtype not in device.dtypes:
            msg = f"{device.name} does not compute in {dtype!r}; expected one of {', '.join(device.dtypes)}"
            raise InputError(msg)
        modules = self.modules()
        numbers = {operator.name: number for number, module in enumerate(modules) for operator in module}
        return tuple(_layer(module, device, batch, dtype, numbers) for module in modules)

    def layers_left(
        self,
        device: OperatorTimer,
        left: OperatorTimer,
        batch: int | None = None,
        dtype: str | None = None,
    ) -> tuple[Layer, ...]:
        """Layers with their times on what an endpoint leaves of a device, each slowed by its own operators.

        Parameters
        ----------
        device, left
            The whole device, and the part of it that is left for computing.
        batch, dtype
            As for `layers`.
        """
        del device
        return self.layers(left, batch, dtype)


def _layer(
    module: list[Operator], device: OperatorTimer, batch: int, dtype: str, numbers: dict[str, int]
) -> Layer:
    head = next(operator for operator in module if operator.starts_layer)
    element_bytes = ELEMENT_BYTES[dtype]
    times = [device.seconds(operator, batch, dtype) for operator in module]
    tensors = tuple(count * element_bytes for count in head.tensors)
    exchange = None
    if head.exchange is not None:
        elements, needed_by = head.exchange
        exchange = LayerExchange(batch * elements * element_bytes, numbers[needed_by])
    return Layer(
        head.name,
        sum(tensors),
        math.fsum(forward for forward, _ in times),
        math.fsum(backward for _, backward in times),
        tensors=tensors,
        exchange=exchange,
        # Of the two products of its backward pass, as large as each other, one is that of the weights.
        tied_gradient_s=math.fsum(
            backward / (2 if operator.input_gradient else 1)
            for operator, (_, backward) in zip(module, times, strict=True)
            if operator.tied
        ),
    )
