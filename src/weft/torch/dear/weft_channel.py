"""DeAR's operations over a communicator of Weft, by the two halves of its schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weft.errors import InputError, LimitError
from weft.runtime.buffers import DTYPES
from weft.torch.dear.bucket_channel import BucketChannel, BucketCut, StartedOperation

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from weft import _runtime
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
        return self.start(self.prepare("vote", -1, self._summing(tensor)))

    def repeated_sum(self, tensor: torch.Tensor) -> Callable[[], StartedOperation]:
        """Return a function that starts adding up the same small tensor of all ranks, in place."""
        once = self.prepare("vote", -1, self._summing(tensor))
        return _Repeated(self, once, _as_array(tensor), "sum", slice(0)).start

    def _summing(self, tensor: torch.Tensor) -> Callable[[], Any]:
        array = _as_array(tensor)
        return lambda: self.communicator.all_reduce(array)

    def together(self) -> AbstractContextManager[None]:
        """Start several operations within a context, and wake the thread of operations once."""
        return self.communicator.together()

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


class _Repeated:
    """An operation on one array that is started in every step.

    Parameters
    ----------
    channel
        The channel.
    once
        The operation, as `WeftChannel.prepare` returns it.
    array, op, divided
        As for `Communicator.repeat`.
    """

    __slots__ = ("_array", "_call", "_channel", "_communicator", "_divided", "_once", "_op")

    def __init__(
        self, channel: WeftChannel, once: Callable[[], None], array: Any, op: str, divided: slice
    ) -> None:
        self._channel, self._communicator, self._once = channel, channel.communicator, once
        self._array, self._op, self._divided = array, op, divided
        self._call: _runtime.RepeatedCall | None = None

    def start(self) -> StartedOperation:
        """Queue it; the thread of operations repeats it without Python unless somebody wants its times."""
        call = self._call
        if call is not None and self._channel.listener is None and call.start(self._communicator.timeout):
            return call
        return self._channel.start(self._run)

    def _run(self) -> None:
        self._once()
        if self._call is None or not self._call.usable:
            # It refers to the operation and not to this object: cycles through C++ are never collected.
            self._call = self._communicator.repeat(self._once, self._array, self._op, self._divided)


class _WeftCut(BucketCut):
    def __init__(self, channel: WeftChannel, halves: SplitAllReduce, group: int) -> None:
        self._channel, self._halves, self._group = channel, halves, group
        self.mine, self.padded = halves.mine, halves.elements
        self._repeated: dict[tuple[str, int], _Repeated] = {}

    def reduce(self, bucket: torch.Tensor) -> StartedOperation:
        return self._start("reduce_scatter", bucket)

    def own(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket[self.mine]

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> StartedOperation:  # noqa: ARG002
        return self._start("all_gather", bucket)

    def all_reduce(self, bucket: torch.Tensor) -> StartedOperation:
        return self._start("all_reduce", bucket)

    def _start(self, kind: str, bucket: torch.Tensor) -> StartedOperation:
        place = kind, bucket.data_ptr()
        found = self._repeated.get(place)  # one buffer serves every step
        if found is None:
            found = self._repeated[place] = self._prepare(kind, _as_array(bucket))
        return found.start()

    def _prepare(self, kind: str, array: Any) -> _Repeated:
        halves, communicator = self._halves, self._channel.communicator
        op, divided = "sum", slice(0)
        if kind == "reduce_scatter":
            run, divided = halves.reduction(array, "avg"), halves.mine
        elif kind == "all_gather":
            run = halves.gathering(array)
        else:
            op, divided = "avg", slice(None)

            def run() -> Any:
                return communicator.all_reduce(array, "avg")

        return _Repeated(self._channel, self._channel.prepare(kind, self._group, run), array, op, divided)


def _as_array(bucket: torch.Tensor) -> Any:
    """Return the same memory as the runtime takes it fastest; numpy has no bfloat16."""
    return bucket if bucket.dtype is torch.bfloat16 else bucket.numpy()
