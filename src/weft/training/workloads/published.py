"""Workloads whose layer times are published: ResNet-50 and DLRM of ASTRA-sim 1.0, by authors of ACE.

The files in ``astra_sim`` have the cycles and the bytes of each layer, but not what a layer asks of
processors and memory. Where an endpoint takes some of them away, a published layer is slowed by as much as
the roofline of the device says for the same layer's operators (`PublishedWorkload.layers_left`).

Neither the batch nor the machine is said in the files. The arithmetic of the cycles answers: 41 of the 54
forward passes of ResNet-50 are exactly what one picture takes on an array of 256 x 256 multipliers, and
DLRM's MLPs what 512 samples take there.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from weft.errors import InputError
from weft.training.layers import Layer, LayerExchange, slow_down
from weft.training.workloads.operators import linear, pointwise, spread_embeddings
from weft.training.workloads.vision import resnet50
from weft.training.workloads.workload import Workload

if TYPE_CHECKING:
    from weft.training.devices import OperatorTimer
    from weft.training.workloads.operators import Operator

Grouping = Literal["layer", "normalised", "convolution"]
"""Which operators stand for a published convolution: ``normalised`` is the convolution with its batch
normalisation, ``layer`` adds what follows that without parameters (activation, sum, pooling), and
``convolution`` is the convolution by itself."""

_CYCLE_S: Final = 1e-9
_SOURCE: Final = "ASTRA-sim 1.0, workload_inputs at 26ef349 (MIT); the batch recalled from the ACE paper"
_STAGES: Final = {"64": 1, "128": 2, "256": 3, "512": 4}

_DLRM_SHAPES: Final = {
    "MLP_Bottom_0": (13, 256),
    "MLP_Bottom_1": (256, 512),
    "MLP_Bottom_2": (512, 256),
    "MLP_Bottom_3": (256, 16),
    "MLP_Top_0": (1040, 256),
    "MLP_Top_1": (256, 512),
    "MLP_Top_2": (512, 256),
}
"""Inputs and outputs of DLRM's layers, inferred: their products are the published bytes at four bytes a
parameter, and their folds on an array of 256 x 256 the published cycles."""

_DLRM_WIDTH: Final = 16
_DLRM_NEEDED_BY: Final = "MLP_Top_0"


@dataclass(frozen=True, slots=True)
class PublishedWorkload(Workload):
    """A workload whose layers have published times, and operators that say what slows them.

    Parameters
    ----------
    published
        The layers, with their times when nothing is taken away from computing.
    groups
        The operators of each layer; together they are `operators`.
    """

    published: tuple[Layer, ...]
    groups: tuple[tuple[Operator, ...], ...]

    def modules(self) -> list[list[Operator]]:
        """The operators of each published layer."""
        return [list(group) for group in self.groups]

    def layers(
        self, device: OperatorTimer, batch: int | None = None, dtype: str | None = None
    ) -> tuple[Layer, ...]:
        """The published layers: neither their times nor their bytes depend on the device.

        Raises
        ------
        InputError
            If another batch is asked for than `batch`, for which there are no times.
        """
        del device, dtype
        if batch not in (None, self.batch):
            msg = f"workload {self.name}: a batch of {batch}; its times are published for one batch only"
            raise InputError(f"{msg}: leave it at {self.batch}")
        return self.published

    def layers_left(
        self,
        device: OperatorTimer,
        left: OperatorTimer,
        batch: int | None = None,
        dtype: str | None = None,
    ) -> tuple[Layer, ...]:
        """The published layers, each slowed by as much as a roofline says for the same layer's operators."""
        # The roofline is that of the class above: its times of the same groups of operators.
        whole, less = (Workload.layers(self, one, self.batch, dtype) for one in (device, left))
        return tuple(
            slow_down(layer, after.forward_s / before.forward_s, after.backward_s / before.backward_s)
            for layer, before, after in zip(self.layers(device, batch), whole, less, strict=True)
        )


def published_resnet50() -> PublishedWorkload:
    """ResNet-50 with the layer times of ASTRA-sim 1.0, a batch normalisation with its convolution.

    Examples
    --------
    >>> from weft.training.layers import backward_seconds, forward_seconds, total_bytes
    >>> layers = published_resnet50().published
    >>> round((forward_seconds(layers) + backward_seconds(layers)) * 1e9), total_bytes(layers)
    (1095314, 102011648)
    """
    return resnet50_grouped("normalised")


@cache
def resnet50_grouped(grouping: Grouping) -> PublishedWorkload:
    """ResNet-50 with published layer times; `grouping` says by which operators a layer is slowed."""
    modules = [tuple(module) for module in resnet50().modules()]
    by_name = {_head(module).name: module for module in modules}
    found = [
        _published(
            row, by_name["fc"] if row["layer"] == "fc1000" else _convolution(row["layer"], by_name, grouping)
        )
        for row in _rows("resnet50")
    ]
    summary = "ResNet-50 with the layer times of ASTRA-sim 1.0"
    return _workload("resnet50-published", summary, found, 32)


@cache
def published_dlrm() -> PublishedWorkload:
    """DLRM with the layer times of ASTRA-sim 1.0; its first top layer waits for the embeddings' exchange."""
    rows = _rows("dlrm")
    needed_by = [row["layer"] for row in rows].index(_DLRM_NEEDED_BY)
    found = []
    for row in rows:
        name = row["layer"]
        if (sent := int(row["forward_bytes"])) > 0:
            tables = sent // (512 * _DLRM_WIDTH * 4)
            operators: tuple[Operator, ...] = (
                spread_embeddings(name, tables, _DLRM_WIDTH, 1, needed_by=_DLRM_NEEDED_BY),
            )
            found.append(_published(row, operators, LayerExchange(sent, needed_by)))
        else:
            inputs, outputs = _DLRM_SHAPES[name]
            operators = linear(name, inputs, outputs, bias=False), pointwise(f"{name}.relu", outputs)
            found.append(_published(row, operators))
    return _workload("dlrm-published", "DLRM with the layer times of ASTRA-sim 1.0", found, 512)


def _workload(
    name: str, summary: str, found: list[tuple[Layer, tuple[Operator, ...]]], batch: int
) -> PublishedWorkload:
    layers, groups = zip(*found, strict=True)
    operators = tuple(operator for group in groups for operator in group)
    return PublishedWorkload(name, summary, operators, batch, _SOURCE, layers, groups)


def _published(
    row: dict[str, str], operators: tuple[Operator, ...], exchange: LayerExchange | None = None
) -> tuple[Layer, tuple[Operator, ...]]:
    forward, inputs, weights = (
        int(row[f"{which}_cycles"]) * _CYCLE_S for which in ("forward", "input_gradient", "weight_gradient")
    )
    size_bytes = int(row["weight_gradient_bytes"])
    backward = inputs + weights
    layer = Layer(
        row["layer"],
        size_bytes,
        forward,
        backward,
        exchange=exchange,
        weight_gradient_s=min(weights, backward),
    )
    return layer, operators


def _convolution(
    name: str, by_name: dict[str, tuple[Operator, ...]], grouping: Grouping
) -> tuple[Operator, ...]:
    """The operators of a published layer: ``layer_128_2_conv3`` is ``layer2.1.conv3`` of torchvision."""
    if name == "conv1":
        own, normalised = "conv1", "bn1"
    else:
        _, width, block, convolution = name.split("_")
        prefix, number = f"layer{_STAGES[width]}.{int(block) - 1}.", convolution.removeprefix("conv")
        shortcut = number == "4"
        own = f"{prefix}downsample.0" if shortcut else f"{prefix}conv{number}"
        normalised = f"{prefix}downsample.1" if shortcut else f"{prefix}bn{number}"
    match grouping:
        case "layer":
            return (*by_name[own], *by_name[normalised])
        case "normalised":
            return _head(by_name[own]), _head(by_name[normalised])
        case "convolution":
            return (_head(by_name[own]),)


def _head(module: tuple[Operator, ...]) -> Operator:
    """The operator with parameters of a module."""
    return next(operator for operator in module if operator.starts_layer)


def _rows(name: str) -> list[dict[str, str]]:
    path = Path(__file__).parent / "astra_sim" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
