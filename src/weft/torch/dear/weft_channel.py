"""DeAR's buckets over a communicator of Weft, by the two halves of its schedules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from weft.errors import InputError, LimitError
from weft.runtime.buffers import DTYPES
from weft.torch.dear.bucket_channel import BucketChannel, BucketCut, Pending
from weft.torch.dear.operation_order import OperationOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime import Communicator
    from weft.runtime.split_all_reduce import SplitAllReduce


class WeftChannel(BucketChannel):
    """Over a communicator of Weft, with its schedules.

    Parameters
    ----------
    communicator
        For DeAR alone: what others do on it would come in between.
    """

    ordered = True
    counts = False
    name = "weft"

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self._line = OperationOrder(communicator)

    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Memory that the ranks of a machine share, as long as there is room."""
        if like.device.type != "cpu":
            msg = f"a parameter is on {like.device}; the group 'weft' moves CPU memory: use an NCCL group"
            raise InputError(msg)
        if str(like.dtype).removeprefix("torch.") not in DTYPES:
            msg = f"a parameter is of {like.dtype}; DeAR trains {', '.join(DTYPES)}"
            raise InputError(msg)
        kind = np.int16 if like.dtype is torch.bfloat16 else _numpy_type(like.dtype)
        try:
            array = self.communicator.empty(elements, kind)
        except LimitError:  # private memory is only slower
            return torch.zeros(elements, dtype=like.dtype)
        array[...] = 0
        found = torch.from_numpy(array)
        return found.view(torch.bfloat16) if like.dtype is torch.bfloat16 else found

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:  # noqa: ARG002
        """Halves of the schedule for this size."""
        return _WeftCut(self, self.communicator.halves(elements, dtype), group)

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Add up, in turn with everything else."""
        return self.pending("vote", -1, lambda: self.communicator.all_reduce(tensor))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give everybody rank 0's."""
        if self.size > 1:
            self.communicator.broadcast(tensor)

    def failure(self) -> BaseException | None:
        """What ended the communicator."""
        return self.communicator.failure

    def close(self) -> None:
        """Close the communicator."""
        self.communicator.close()

    def pending(self, kind: str, group: int, run: Callable[[], Any]) -> Pending:
        """Start something in turn; report when it was under way."""

        def timed() -> None:
            start = time.perf_counter()
            run()
            self.report(kind, group, start, time.perf_counter())

        self.communicator.check_open()
        number = self._line.start(timed)
        return Pending(lambda: self._line.wait(number), lambda: self._line.is_done(number))


class _WeftCut(BucketCut):
    def __init__(self, channel: WeftChannel, halves: SplitAllReduce, group: int) -> None:
        self._channel, self._halves, self._group = channel, halves, group
        self.mine, self.owned = halves.mine, halves.owned
        self.padded = halves.elements

    def reduce(self, bucket: torch.Tensor) -> Pending:
        array = _seen(bucket)
        return self._channel.pending("reduce_scatter", self._group, lambda: self._halves.reduce(array, "avg"))

    def own(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket[self.mine]

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> Pending:  # noqa: ARG002 - it lies there
        array = _seen(bucket)
        return self._channel.pending("all_gather", self._group, lambda: self._halves.gather(array))

    def all_reduce(self, bucket: torch.Tensor) -> Pending:
        communicator = self._channel.communicator
        return self._channel.pending(
            "all_reduce", self._group, lambda: communicator.all_reduce(bucket, "avg")
        )


def _seen(bucket: torch.Tensor) -> Any:
    """The same memory as the runtime looks at it fastest; numpy has no bfloat16."""
    return bucket if bucket.dtype is torch.bfloat16 else bucket.numpy()


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))
