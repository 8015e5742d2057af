"""What computes: how long a device takes for an operator.

A `Device` is a roofline: an operator takes as long as its FLOPs or its bytes need, whichever is longer, at
the share of the data sheet's figures that real kernels reach, plus a little for each kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from weft.errors import InputError, look_up
from weft.notebook_display import ShortRepr
from weft.training.systolic_array import SystolicArray
from weft.training.workloads.operators import ELEMENT_BYTES

if TYPE_CHECKING:
    from weft.training.workloads.operators import Operator, OperatorWork

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


_GIGA: Final = 1e9
_GB: Final = 10**9
_GIB: Final = 2**30


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
            "b200",
            _tera(bf16=2250, fp16=2250, tf32=1100, fp32=80),
            8000 * _GIGA,
            148,
            "glennklockwood.com, garden/processors/B200: HGX at 1000 W, without sparsity; units"
            " of hmc-tech.com, memory of NVIDIA's support matrix of Boltz-2",
            memory_bytes=180 * _GB,
        ),
        Device(
            "gb200",
            _tera(bf16=2500, fp16=2500, tf32=1250, fp32=90),
            8000 * _GIGA,
            148,
            "glennklockwood.com, garden/processors/B200: GB200 at 1200 W, without sparsity; units"
            " of hmc-tech.com, memory of the inference results v6.1 of MLCommons",
            memory_bytes=186 * _GB,
        ),
        Device(
            "mi300x",
            _tera(bf16=1307.4, fp16=1307.4, fp32=163.4),
            5300 * _GIGA,
            304,
            "AMD Instinct MI300X data sheet, without sparsity, as public tables repeat it",
            memory_bytes=192 * _GB,
        ),
        Device(
            "tpu-v4",
            _tera(bf16=275),
            1200 * _GIGA,
            2,
            "Google Cloud, TPU v4: system architecture; units are TensorCores",
            memory_bytes=32 * _GIB,
        ),
        Device(
            "tpu-v5p",
            _tera(bf16=459),
            2765 * _GIGA,
            2,
            "Google Cloud, TPU v5p: system architecture; units are TensorCores",
            memory_bytes=95 * _GB,
        ),
        Device(
            "trainium2",
            _tera(bf16=667, fp16=667, tf32=667, fp32=181),
            2900 * _GIGA,
            8,
            "AWS Neuron, Trainium2 architecture, without sparsity; units are NeuronCores",
            memory_bytes=96 * _GIB,
        ),
        Device(
            "gb10",
            _tera(fp32=31),
            273 * _GIGA,
            48,
            "NVIDIA at Hot Chips 2025, as The Register reports it; ai-infrastructure.net: memory, 6,144"
            " cores, 128 to a unit. A dense peak of other formats was not found",
            memory_bytes=128 * _GB,
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

_OF_PRESETS: Final = {
    "dgx-a100": "a100",
    "dgx-h100": "h100",
    "dgx-b200": "b200",
    "gb200-nvl72": "gb200",
    "mi300x": "mi300x",
    "tpu-v4": "tpu-v4",
    "tpu-v5p": "tpu-v5p",
    "trn2": "trainium2",
    "spark-ring": "gb10",
}

_UNKNOWN: Final = {"mac-mesh": "it may be any Mac, and Apple publishes no FLOP/s of its GPUs"}
"""Presets whose own device has no published figures, and why."""


def default_device(topology_name: str) -> Device | SystolicArray:
    """Give the device that a cluster of this name has: a preset's own, and `USUAL` where there is no preset.

    Raises
    ------
    InputError
        If it is a preset whose device has no published figures.

    Examples
    --------
    >>> default_device("dgx-h100:2+fail=host0.nic5").name, default_device("torus:4x4").name
    ('h100', 'v100')
    """
    preset = re.split("[:*@+]", topology_name, maxsplit=1)[0]
    if preset in _UNKNOWN:
        known = ", ".join(DEVICES)
        raise InputError(
            f"{preset} has no device of its own: {_UNKNOWN[preset]}; give --device, one of {known}"
        )
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
