"""What is different where an accelerator computes: work is queued on streams, and is over later.

`Streams` keeps the order between the streams on which the gradients of one bucket become ready.

Each gradient is copied into its bucket on the stream where it became ready; the bucket is sent from that of
the last one. Where these differ, the last must wait for the others. `make_clock` reads the time after the
queued work is over. Neither was ever run on an accelerator, only with a device that records its calls.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Streams:
    """Streams that have written to a bucket.

    Parameters
    ----------
    device
        Of the bucket.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device)
        self._written: list[Any] = []

    def note(self) -> None:
        """Something was written on the current stream."""
        stream = self._module.current_stream(self._device)
        if stream not in self._written:
            self._written.append(stream)

    def join(self) -> None:
        """Let the current stream wait for all that was written."""
        current = self._module.current_stream(self._device)
        for stream in self._written:
            if stream != current:
                current.wait_stream(stream)
        self._written.clear()


def make_clock(devices: Iterable[torch.device]) -> Callable[[], float]:
    """Clock for measuring what these devices compute: `time.perf_counter` once all queued work is over.

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
