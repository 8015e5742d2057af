"""What an endpoint costs computing, layer by layer.

An endpoint takes processors and memory bandwidth away, and each layer is slowed by as much as its own
operators need them. Either they are set aside all the time, and the layers are simply slower; or they are
taken only while a collective is under way, and then each layer has a factor for these times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from weft.errors import InputError
from weft.training.devices import Device

if TYPE_CHECKING:
    from weft.training.devices import OperatorTimer
    from weft.training.endpoints import Endpoint
    from weft.training.layers import Layer
    from weft.training.workloads import Workload

Slowdowns: TypeAlias = "Mapping[tuple[str, int], float]"
"""How many times as long a pass of a layer takes while its rank sends, by ``forward`` or ``backward`` and the
number of the layer."""


def layers_under(
    workload: Workload,
    device: OperatorTimer,
    endpoint: Endpoint,
    batch: int | None = None,
    dtype: str | None = None,
) -> tuple[tuple[Layer, ...], Slowdowns | None]:
    """Layers of a workload on a device with an endpoint, and how much slower each is while its rank sends.

    Parameters
    ----------
    workload, device, batch, dtype
        As for `Workload.layers`.
    endpoint
        What takes from computing.

    Returns
    -------
    tuple
        The layers, and the factors; None where the times of the layers hold whether anything is sent or not.

    Raises
    ------
    InputError
        If nothing is left to compute with, or the device cannot be shared.

    Examples
    --------
    >>> from weft.training.devices import find_device
    >>> from weft.training.endpoints import find_endpoint
    >>> from weft.training.workloads import load_workload
    >>> resnet, npu = load_workload("resnet50-published"), find_device("ace-npu")
    >>> layers, slowdowns = layers_under(resnet, npu, find_endpoint("comm-opt:while-sending"))
    >>> layers[0].forward_s, round(slowdowns["forward", 0], 2)
    (1.3003e-05, 1.74)
    """
    left = _left_by(endpoint, device)
    if left is device:
        return workload.layers(device, batch, dtype), None
    slowed = workload.layers_left(device, left, batch, dtype)
    if not endpoint.only_while_sending:
        return slowed, None
    whole = workload.layers(device, batch, dtype)
    slowdowns: dict[tuple[str, int], float] = {}
    for number, (before, after) in enumerate(zip(whole, slowed, strict=True)):
        slowdowns["forward", number] = _ratio(after.forward_s, before.forward_s)
        slowdowns["backward", number] = _ratio(after.backward_s, before.backward_s)
    return whole, slowdowns


def _ratio(after: float, before: float) -> float:
    """How many times as long; a pass that takes no time is slowed by nothing."""
    return after / before if before else 1.0


def _left_by(endpoint: Endpoint, device: OperatorTimer) -> OperatorTimer:
    """What an endpoint leaves of a device for computing."""
    if endpoint.memory_bandwidth is None or not endpoint.overlaps:
        return device
    if not isinstance(device, Device):
        msg = f"endpoint {endpoint.name} takes memory bandwidth, which {device.name} does not model"
        raise InputError(f"{msg}; use free, ideal or no-overlap")
    return endpoint.leaves(device)
