"""Counts what a training job keeps in the memory of each device, and says what would fit if that does not.

Parameters, gradients and the state of Adam are counted as in ZeRO (Rajbhandari et al. 2020,
arXiv:1910.02054, Section 3.1): with 16-bit numbers 2, 2 and 12 bytes a parameter, because the optimizer keeps
parameters and both moments in fp32; with 32-bit numbers 4, 4 and 8. Activations are those of
`KeptActivations`, where a workload has them. Neither tables that are spread over the ranks nor what buffers,
libraries and fragmentation take are counted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from weft.training.devices import Device
from weft.training.workloads.operators import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.training.devices import OperatorTimer
    from weft.training.policies import Policy
    from weft.training.workloads import Workload

ADAM_BYTES: Final = {2: 12, 4: 8}
"""Bytes of the optimizer's state for each parameter, by the bytes of a number."""

_STAGES: Final = ((2, "--policy zero"), (3, "--policy zero --option stage=3"))
"""Stages of ZeRO that Weft simulates, and how they are asked for."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes that each device keeps, by what they are for.

    Parameters
    ----------
    parameter_bytes, gradient_bytes, optimizer_bytes
        Of the model, as far as this device has it.
    activation_bytes
        What the forward pass keeps for the backward pass; None where the workload does not say.
    activation_source
        How these were counted.
    capacity_bytes
        What the device has; None where that is not known.
    """

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int | None
    activation_source: str
    capacity_bytes: int | None

    @property
    def total_bytes(self) -> int:
        """All that was counted."""
        model = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
        return model + (self.activation_bytes or 0)

    @property
    def fits(self) -> bool | None:
        """Whether the device has room; None where that is not known."""
        if self.capacity_bytes is None:
            return None
        if self.total_bytes > self.capacity_bytes:
            return False
        return None if self.activation_bytes is None else True

    def to_dict(self) -> dict[str, Any]:
        """All figures, with the total and whether it fits."""
        return {**asdict(self), "total_bytes": self.total_bytes, "fits": self.fits}


def count_memory(
    workload: Workload, device: OperatorTimer, batch: int, dtype: str | None, ranks: int, stage: int = 0
) -> DeviceMemory:
    """Count what each of `ranks` devices keeps.

    Parameters
    ----------
    workload, device, batch, dtype
        As for `Workload.layers`.
    ranks
        Among which parts of the model are divided.
    stage
        Of ZeRO: 0 divides nothing, 1 the optimizer's state, 2 gradients as well, 3 parameters as well.

    Examples
    --------
    >>> from weft.training.devices import find_device
    >>> from weft.training.workloads import load_workload
    >>> found = count_memory(load_workload("llama2-7b"), find_device("h100"), 1, None, 64)
    >>> found.optimizer_bytes / found.parameter_bytes, found.total_bytes > found.capacity_bytes
    (6.0, True)
    """
    number_bytes = ELEMENT_BYTES[device.dtypes[0] if dtype is None else dtype]
    count = workload.parameters
    shares = [1 if stage < least else ranks for least in (3, 2, 1)]
    sizes = (number_bytes, number_bytes, ADAM_BYTES[number_bytes])
    parameters, gradients, state = (
        -(-count * size // share) for size, share in zip(sizes, shares, strict=True)
    )
    kept = workload.kept
    activations = None if kept is None else batch * (kept.elements * number_bytes + kept.fixed_bytes)
    capacity = device.memory_bytes if isinstance(device, Device) else None
    source = "" if kept is None else kept.source
    return DeviceMemory(parameters, gradients, state, activations, source, capacity)


def zero_stage(policy: Policy, options: Mapping[str, Any]) -> int:
    """The stage of ZeRO that a policy with its options amounts to; 0 where every device has all."""
    return int(options.get("stage", policy.options["stage"])) if policy.name == "zero" else 0


def advise_on_memory(
    workload: Workload, device: OperatorTimer, batch: int, dtype: str | None, ranks: int, stage: int
) -> str:
    """Say what would fit where the job at this stage of ZeRO does not; empty where it does."""
    found = count_memory(workload, device, batch, dtype, ranks, stage)
    if found.fits is not False:
        return ""
    assert found.capacity_bytes is not None
    for higher, option in _STAGES:
        divided = count_memory(workload, device, batch, dtype, ranks, higher)
        if higher > stage and divided.total_bytes <= found.capacity_bytes:
            least = "" if divided.activation_bytes is not None else "at least "
            size = f"{divided.total_bytes / 1e9:,.1f} GB"
            return f"ZeRO, which divides the model among the ranks, needs {least}{size}: {option}"
    smaller = "a smaller --batch, " if batch > 1 else ""
    return f"no stage of ZeRO makes it fit: use {smaller}a device with more memory, or more ranks"
