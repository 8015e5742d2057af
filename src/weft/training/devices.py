"""What computes: how long a device takes for an operator.

A `Device` is a roofline: an operator takes as long as its FLOPs or its bytes need, whichever is longer, at
the share of the data sheet's figures that real kernels reach, plus a little for each kernel. A
`SystolicArray` counts the cycles of MultiTree's accelerator exactly as its authors' simulator does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

from weft.errors import InputError, look_up
from weft.notebook_display import ShortRepr
from weft.training.workloads.operators import ELEMENT_BYTES

if TYPE_CHECKING:
    from weft.training.workloads.operators import Operator, OperatorWork, Product

CORE_EFFICIENCY: Final = 0.75
"""Assumption: share of the fp32 peak that products and convolutions reach on ordinary cores.

The best products reach a seventh of 83 TFLOP/s on a V100, 0.76 of the data sheet's 15.7 (Markidis et al.
2018, arXiv:1803.04014). Layers of real models are smaller, but some of their convolutions save
multiplications (Winograd). docs/workloads.md holds the outcome against measurements."""

TENSOR_EFFICIENCY: Final = 0.5
"""Assumption: the same on tensor cores, for every other format.

There the best product reaches 83 of 125 TFLOP/s, 0.66 (same source); smaller ones fill these units worse."""

MEMORY_EFFICIENCY: Final = 0.8
"""Assumption: share of the data sheet's memory bandwidth that kernels reach.

Measured on a V100: 750 of 900 GB/s, 0.83 (Jia et al. 2018, arXiv:1804.06826)."""

LAUNCH_S: Final = 3e-6
"""Assumption: seconds that each kernel takes beside its work, with launches queued ahead."""


class OperatorTimer(Protocol):
    """A device that says how long an operator takes."""

    @property
    def name(self) -> str:
        """The name of the device, as reports show it."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Number formats, the usual one first."""

    def seconds(self, operator: Operator, batch: int, dtype: str) -> tuple[float, float]:
        """Seconds of the forward and the backward pass over a batch."""


@dataclass(frozen=True, slots=True, repr=False)
class Device(ShortRepr):
    """A processor with a memory.

    Parameters
    ----------
    name
        For people.
    flops_per_s
        Peak FLOP/s of matrix products by number format; the first is what `Workload.layers` takes by itself.
    memory_bytes_per_s
        Of the data sheet.
    units
        Processors that it has (streaming multiprocessors), of which an endpoint may take some away.
    source
        Where these are from.
    core_efficiency, tensor_efficiency, memory_efficiency, launch_s
        See the constants of this module.
    memory_bytes
        What its memory holds, by the same source; None if that is not known. A GB of a data sheet counts as
        10^9 bytes: what chips have beyond that, drivers and libraries take.

    Raises
    ------
    InputError
        If a figure cannot be.
    """

    name: str
    flops_per_s: tuple[tuple[str, float], ...]
    memory_bytes_per_s: float
    units: int
    source: str
    core_efficiency: float = CORE_EFFICIENCY
    tensor_efficiency: float = TENSOR_EFFICIENCY
    memory_efficiency: float = MEMORY_EFFICIENCY
    launch_s: float = LAUNCH_S
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        unknown = [dtype for dtype in self.dtypes if dtype not in ELEMENT_BYTES]
        if unknown or not self.flops_per_s:
            problem = f"number format {unknown[0]!r} is unknown" if unknown else "no number format"
            raise InputError(f"device {self.name}: {problem}; expected some of {', '.join(ELEMENT_BYTES)}")
        figures = (self.memory_bytes_per_s, *(peak for _, peak in self.flops_per_s))
        if not all(0 < figure < float("inf") for figure in figures) or self.units < 1:
            raise InputError(f"device {self.name}: speeds and units are above 0")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise InputError(f"device {self.name}: a memory of {self.memory_bytes} bytes; it has at least 1")
        shares = (self.core_efficiency, self.tensor_efficiency, self.memory_efficiency)
        if not all(0 < share <= 1 for share in shares) or not 0 <= self.launch_s < float("inf"):
            msg = f"device {self.name}: efficiencies are above 0 and at most 1, launches at least 0 s"
            raise InputError(msg)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Number formats, the usual one first."""
        return tuple(dtype for dtype, _ in self.flops_per_s)

    def seconds(self, operator: Operator, batch: int, dtype: str) -> tuple[float, float]:
        """Seconds of the forward and the backward pass over a batch."""
        element_bytes = ELEMENT_BYTES[dtype]
        reached = dict(self.flops_per_s)[dtype]
        reached *= self.core_efficiency if dtype == "fp32" else self.tensor_efficiency
        forward = operator.forward(batch, element_bytes)
        backward = operator.backward(batch, element_bytes)
        return self._time(forward, reached), self._time(backward, reached)

    def _time(self, work: OperatorWork, flops_per_s: float) -> float:
        if not work.flops and not work.bytes:
            return 0.0
        computing = work.flops / flops_per_s
        moving = work.bytes / (self.memory_bytes_per_s * self.memory_efficiency)
        return max(computing, moving) + work.kernels * self.launch_s

    def share(self, *, compute: float = 1.0, memory_bandwidth: float = 1.0) -> Device:
        """The same device with only a share of its processors and its bandwidth left for computing.

        Parameters
        ----------
        compute, memory_bandwidth
            Shares that are left, above 0 and at most 1.

        Examples
        --------
        >>> npu = find_device("ace-npu").share(compute=74 / 80, memory_bandwidth=450 / 900)
        >>> npu.memory_bytes_per_s, dict(npu.flops_per_s)["fp16"]
        (450000000000.0, 111000000000000.0)
        """
        for what, left in (("compute", compute), ("memory_bandwidth", memory_bandwidth)):
            if not 0 < left <= 1:
                msg = f"device {self.name}: a {what} of {left}; expected the share that is left, above 0 to 1"
                raise InputError(msg)
        return replace(
            self,
            flops_per_s=tuple((dtype, peak * compute) for dtype, peak in self.flops_per_s),
            memory_bytes_per_s=self.memory_bytes_per_s * memory_bandwidth,
        )


@dataclass(frozen=True, slots=True)
class SystolicArray:
    """MultiTree's accelerator: processing elements with an output-stationary array each, a sample for each.

    Only matrix products and convolutions take time: neither memory nor activations are modelled. Both
    gradients are computed for every layer, and follow one another.

    Parameters
    ----------
    name, source
        For people.
    rows, columns
        Of each array.
    elements
        Processing elements; a larger batch takes several rounds.
    clock_hz
        Cycles per second.
    exact
        Count as the authors' simulator does; if False by the short formula, which is within 1 %.

    Examples
    --------
    >>> from weft.training.workloads import Product
    >>> find_device("multitree-array").cycles(Product(13, 13, 384, 256, 3, 3))
    (110623, 165919, 104575)
    """

    name: str
    source: str
    rows: int = 32
    columns: int = 32
    elements: int = 16
    clock_hz: float = 1e9
    exact: bool = True

    @property
    def dtypes(self) -> tuple[str, ...]:
        """It computes in fp32 only."""
        return ("fp32",)

    def seconds(self, operator: Operator, batch: int, dtype: str) -> tuple[float, float]:
        """Seconds of the forward and the backward pass over a batch; it computes in `dtype` fp32 alone."""
        del dtype
        if operator.flops:
            msg = f"{self.name} needs shapes, and {operator.name} has only FLOPs; take another device"
            raise InputError(msg)
        rounds = ceil(batch / self.elements)
        forward = backward = 0
        for product in operator.products:
            first, inputs, weights = self.cycles(product)
            forward += product.count * first
            backward += product.count * (weights + (inputs if operator.input_gradient else 0))
        return rounds * forward / self.clock_hz, rounds * backward / self.clock_hz

    def cycles(self, product: Product) -> tuple[int, int, int]:
        """Cycles of one product: forward, gradient of the input, gradient of the weights."""
        window = product.kernel_height * product.kernel_width
        places = product.out_height * product.out_width
        pixels = product.height * product.width
        shapes = (
            (places, product.filters, window * product.channels),
            (pixels, product.channels, window * product.filters),
            (window * product.channels, product.filters, places),
        )
        if not self.exact:
            first, second, third = (self._short(*shape) for shape in shapes)
            return first, second, third
        return (
            self._forward(product, *shapes[0]),
            self._input_gradient(window, *shapes[1]),
            self._weight_gradient(*shapes[2]),
        )

    def share(self, *, compute: float = 1.0, memory_bandwidth: float = 1.0) -> SystolicArray:
        """Refuse: its memory is not modelled, and so nothing can be taken away from it.

        Raises
        ------
        InputError
            Unless all is left.
        """
        if compute == memory_bandwidth == 1:
            return self
        msg = f"{self.name} models no memory and no endpoint; take a device that does, such as ace-npu"
        raise InputError(msg)

    def _short(self, along: int, across: int, depth: int) -> int:
        """Folds back to back; none is shorter than the rows that it has to write out."""
        down, over, rest = self._folds(along, across)
        return over * ((down - 1) * max(depth, self.rows) + max(depth, rest))

    def _folds(self, along: int, across: int) -> tuple[int, int, int]:
        """Folds along the rows, across the columns, and the rows of the last fold."""
        down, over = ceil(along / self.rows), ceil(across / self.columns)
        return down, over, along - self.rows * (down - 1)

    def _forward(self, product: Product, along: int, across: int, depth: int) -> int:
        widths = self._widths(across)
        write = self._write(along, across, depth, widths)
        # The simulator does not round the result's height and width before it counts folds for this side.
        height = product.height - product.kernel_height + product.stride
        width = product.width - product.kernel_width + product.stride
        down = ceil(height * width / (product.stride**2 * self.rows))
        return max(write, self._read(along, across, depth, down))

    def _input_gradient(self, window: int, along: int, across: int, depth: int) -> int:
        down, over, _ = self._folds(along, across)
        write = self._write(along, across, window, [min(self.rows, along)] * over)
        return max(write, self._read(along, across, depth, down))

    def _weight_gradient(self, along: int, across: int, depth: int) -> int:
        over = self._folds(along, across)[1]
        write = self._write(along, across, depth, [min(self.rows, along)] * over)
        return max(write, self._read_rows(along, across, depth))

    def _widths(self, across: int) -> list[int]:
        """Columns that each fold across uses."""
        return [min(self.columns, across - first) for first in range(0, across, self.columns)]

    def _write(self, along: int, across: int, depth: int, starts: list[int]) -> int:
        """When the last result is written: `starts` are the cycles that a fold across needs to fill."""
        down, over, rest = self._folds(along, across)
        widths = self._widths(across)
        turns = sum(max(rest, depth + 1 + starts[fold] - rest - widths[fold - 1]) for fold in range(1, over))
        return depth + starts[0] - 1 + over * (down - 1) * max(depth, self.rows) + rest + turns

    def _read(self, along: int, across: int, depth: int, column_folds: int) -> int:
        """When the last operand is read, on either side."""
        over = self._folds(along, across)[1]
        columns = (across - 1) % self.columns + column_folds * depth * over
        if over > 1:
            columns = max(columns, self.columns - 1 + column_folds * depth * (over - 1))
        return columns if depth == 1 else max(columns, self._read_rows(along, across, depth))

    def _read_rows(self, along: int, across: int, depth: int) -> int:
        down, over, rest = self._folds(along, across)
        lag = max(rest - 1, self.rows - 1 - depth) if down > 1 else rest - 1
        return down * depth * over + lag


_GIGA: Final = 1e9
_GB: Final = 10**9


def _tera(**peaks: float) -> tuple[tuple[str, float], ...]:
    """Peaks by number format, in 10^12 FLOP/s."""
    return tuple((dtype, peak * 1e12) for dtype, peak in peaks.items())


DEVICES: Final[dict[str, Device | SystolicArray]] = {
    device.name: device
    for device in (
        Device(
            "v100",
            _tera(fp32=15.7, fp16=125),
            900 * _GIGA,
            80,
            "NVIDIA Tesla V100 SXM2 data sheet; the larger of its two memories",
            memory_bytes=32 * _GB,
        ),
        Device(
            "rtx2080ti",
            _tera(fp32=13.45, fp16=53.8),
            616 * _GIGA,
            68,
            "NVIDIA Turing architecture white paper: reference clock, fp16 with sums in fp32",
            memory_bytes=11 * _GB,
        ),
        Device(
            "a100",
            _tera(tf32=156, bf16=312, fp16=312, fp32=19.5),
            2039 * _GIGA,
            108,
            "NVIDIA A100 80 GB SXM data sheet, without sparsity",
            memory_bytes=80 * _GB,
        ),
        Device(
            "h100",
            _tera(bf16=989.4, fp16=989.4, tf32=494.7, fp32=66.9),
            3352 * _GIGA,
            132,
            "NVIDIA H100 SXM5 data sheet, without sparsity",
            memory_bytes=80 * _GB,
        ),
        Device(
            "ace-npu",
            _tera(fp16=120),
            900 * _GIGA,
            80,
            "the accelerator of the ACE paper: 80 units at 1245 MHz, recalled and not checked",
        ),
        SystolicArray("multitree-array", "MultiTree's authors' simulator: 16 arrays of 32 x 32 at 1 GHz"),
    )
}
"""Every device by its name."""


USUAL: Final = "v100"
"""What computes on a cluster that does not say what it is made of."""

_OF_PRESETS: Final = {"dgx-a100": "a100", "dgx-h100": "h100"}


def default_device(topology_name: str) -> Device | SystolicArray:
    """Give the device that a cluster of this name has: a preset's own where it is known, else `USUAL`.

    Examples
    --------
    >>> default_device("dgx-h100:2+fail=host0.nic5").name, default_device("torus:4x4").name
    ('h100', 'v100')
    """
    preset = re.split("[:*@+]", topology_name, maxsplit=1)[0]
    return find_device(_OF_PRESETS.get(preset, USUAL))


def find_device(name: str) -> Device | SystolicArray:
    """Give a device by its name.

    Raises
    ------
    InputError
        If there is none of that name; says which there are.

    Examples
    --------
    >>> find_device("v100").dtypes
    ('fp32', 'fp16')
    """
    return look_up("device", name, DEVICES)
