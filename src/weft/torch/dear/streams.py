"""Streams and clocks of accelerators, on which work is queued and is over later.

`Streams` keeps the order between the streams on which the gradients of one bucket become ready. Each gradient
is copied into its bucket on the stream where it became ready; the bucket is sent from that of the last one.
Where these differ, the last must wait for the others. `make_clock` reads the time after the queued work is
over. Neither was ever run on an accelerator, only with a device that records its calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Streams:
    """The streams that have written to a bucket.

    Parameters
    ----------
    device
        The device of the bucket.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._written: list[Any] = []

    def note(self) -> None:
        """Take note that the current stream has written to the bucket."""
        stream = self._module.current_stream(self._device)
        if stream not in self._written:
            self._written.append(stream)

    def join(self) -> None:
        """Let the current stream wait for all other streams that have written to the bucket."""
        current = self._module.current_stream(self._device)
        for stream in self._written:
            if stream != current:
                current.wait_stream(stream)
        self._written.clear()


def make_clock(devices: Iterable[torch.device]) -> Callable[[], float]:
    """Return a clock for measuring devices: `time.perf_counter` once all queued work is over.

    On CPUs, which queue nothing, it is `time.perf_counter` itself.
    """
    queues = [
        (torch.get_device_module(device), device)
        for device in sorted(set(devices), key=str)
        if device.type != "cpu"
    ]
    if not queues:
        return time.perf_counter

    def read() -> float:
        for module, device in queues:
            module.synchronize(device)
        return time.perf_counter()

    return read
