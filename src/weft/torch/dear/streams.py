"""Order between the streams of a device on which the gradients of one bucket become ready.

Each gradient is copied into its bucket on the stream where it became ready; the bucket is sent from that of
the last one. Where these differ, the last must wait for the others.
"""

from __future__ import annotations

from typing import Any

import torch


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
