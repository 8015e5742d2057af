"""DeAR's operations over a communicator of Weft, by the two halves of its schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weft.errors import InputError, LimitError
from weft.runtime.buffers import DTYPES
from weft.torch.dear.bucket_channel import BucketChannel, BucketCut

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime import Communicator
    from weft.runtime.handles import Handle
    from weft.runtime.split_all_reduce import SplitAllReduce


class WeftChannel(BucketChannel):
    """A channel over a communicator of Weft, with its schedules.

    Every operation is queued on the communicator itself and returned as the runtime's own `Handle`.

    Parameters
    ----------
    communicator
        A communicator that only this channel uses: other operations on it would come in between.
    """

    ordered = True
    counts = False
    name = "weft"

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size

    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory that the ranks of a machine share, or private memory where there is no more of it."""
        if like.device.type != "cpu":
            msg = f"a parameter is on {like.device}; the group 'weft' moves CPU memory: use an NCCL group"
            raise InputError(msg)
        name = str(like.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise InputError(f"a parameter is of {like.dtype}; DeAR trains {', '.join(DTYPES)}")
        try:
            array = self.communicator.empty(elements, "int16" if name == "bfloat16" else name)
        except LimitError:  # private memory is only slower
            return torch.zeros(elements, dtype=like.dtype)
        array[...] = 0
        return torch.from_numpy(array).view(like.dtype)

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:  # noqa: ARG002
        """Return the two halves of the schedule for buckets of this size."""
        return _WeftCut(self, self.communicator.halves(elements, dtype), group)

    def sum(self, tensor: torch.Tensor) -> Handle[Any]:
        """Start adding up a small tensor of all ranks, in place."""
        array = _as_array(tensor)
        return self.start(self.prepare("vote", -1, lambda: self.communicator.all_reduce(array)))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give all ranks rank 0's tensor, in place."""
        if self.size > 1:
            self.communicator.broadcast(tensor)

    def failure(self) -> BaseException | None:
        """Return what ended the communicator, if something did."""
        return self.communicator.failure

    def close(self) -> None:
        """Close the communicator."""
        self.communicator.close()

    def prepare(self, kind: str, group: int, run: Callable[[], Any]) -> Callable[[], None]:
        """Return an operation that reports when it ran; after a failure it fails for the same reason."""

        def run_and_report() -> None:
            self.check()
            with self.timed(kind, group):
                run()

        return run_and_report

    def start(self, prepared: Callable[[], None]) -> Handle[Any]:
        """Queue a result of `prepare`."""
        handle: Handle[Any] = self.communicator.in_turn(prepared, async_op=True)
        return handle


class _WeftCut(BucketCut):
    def __init__(self, channel: WeftChannel, halves: SplitAllReduce, group: int) -> None:
        self._channel, self._halves, self._group = channel, halves, group
        self.mine, self.padded = halves.mine, halves.elements
        self._prepared: dict[tuple[str, int], Callable[[], None]] = {}

    def reduce(self, bucket: torch.Tensor) -> Handle[Any]:
        return self._start("reduce_scatter", bucket, lambda array: self._halves.reduction(array, "avg"))

    def own(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket[self.mine]

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> Handle[Any]:  # noqa: ARG002
        return self._start("all_gather", bucket, self._halves.gathering)

    def all_reduce(self, bucket: torch.Tensor) -> Handle[Any]:
        communicator = self._channel.communicator
        return self._start("all_reduce", bucket, lambda array: lambda: communicator.all_reduce(array, "avg"))

    def _start(
        self, kind: str, bucket: torch.Tensor, prepare: Callable[[Any], Callable[[], Any]]
    ) -> Handle[Any]:
        place = kind, bucket.data_ptr()
        if place not in self._prepared:  # one buffer serves every step
            self._prepared[place] = self._channel.prepare(kind, self._group, prepare(_as_array(bucket)))
        return self._channel.start(self._prepared[place])


def _as_array(bucket: torch.Tensor) -> Any:
    """Return the same memory as the runtime takes it fastest; numpy has no bfloat16."""
    return bucket if bucket.dtype is torch.bfloat16 else bucket.numpy()
