"""Where DeAR's buckets are reduced and gathered: over Weft's own runtime, or over any process group of torch.

A `Cut` is one bucket's way through a channel: it knows which part of the bucket this rank owns between the
two halves of an all-reduce. Communication is started, and waited for later; on Weft's runtime it ends in the
order in which it was started, on other groups in any order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from weft import limits
from weft.errors import InputError, LimitError, RuntimeFailure
from weft.torch.dear.line import Line
from weft.torch.internals import device_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.runtime import Communicator
    from weft.runtime.halves import Halves

_LONGEST_NEWS: Final = 64 << 20


class Span(NamedTuple):
    """Something that took time; times of `time.perf_counter`."""

    kind: str
    group: int
    start: float
    end: float


class Pending:
    """Communication that was started; `wait` raises what went wrong."""

    __slots__ = ("_is_done", "_wait")

    def __init__(self, wait: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        self._wait: Callable[[], Any] | None = wait
        self._is_done = is_done

    def is_done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._wait is None or self._is_done()

    def wait(self) -> None:
        """Return once it is over; at once if it was waited for before."""
        if self._wait is not None:
            self._wait()
            self._wait = None


class Cut(ABC):
    """One bucket's way through a channel.

    Attributes
    ----------
    mine
        Elements that this rank owns between the halves.
    owned
        The same of every rank, as (first, last).
    padded
        Elements that a bucket must have, the last ones of no meaning.
    """

    mine: slice
    owned: tuple[tuple[int, int], ...]
    padded: int

    @abstractmethod
    def reduce(self, bucket: torch.Tensor) -> Pending:
        """Start the first half: average, each rank its own part."""

    @abstractmethod
    def own(self, bucket: torch.Tensor) -> torch.Tensor:
        """The part that this rank has averages of, after `reduce`; may be changed before `gather`."""

    @abstractmethod
    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> Pending:
        """Start the second half: give everybody every rank's own part; by default that of `reduce`."""

    @abstractmethod
    def all_reduce(self, bucket: torch.Tensor) -> Pending:
        """Start averaging the whole."""


class Channel(ABC):
    """The ranks that train together, and what moves their gradients.

    Attributes
    ----------
    ordered
        Whether what was started later also works on the data later, without waiting in between.
    counts
        Whether torch counts what comes in as a change of the tensor, as it does a user's changes.
    """

    rank: int
    size: int
    name: str
    ordered: bool
    counts: bool
    listener: Callable[[Span], None] | None = None

    @abstractmethod
    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Room for a bucket, where it is moved fastest; zeros."""

    @abstractmethod
    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> Cut:
        """Way of a bucket of so many elements; `group` is its number in reports."""

    @abstractmethod
    def sum(self, tensor: torch.Tensor) -> Pending:
        """Start adding up something small, in place."""

    @abstractmethod
    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give everybody rank 0's, in place."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """What ended communication, if something did."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""

    def check(self) -> None:
        """Raise what ended communication."""
        if (failure := self.failure()) is not None:
            raise failure

    def share(self, news: bytes) -> bytes:
        """What rank 0 says, on every rank; every rank calls this."""
        if self.size == 1:
            return news
        length = torch.tensor([len(news)])
        self.broadcast(length)
        size = int(length)
        limits.check("bytes that rank 0 tells", size, _LONGEST_NEWS)
        words = np.zeros(-(-size // 4), np.int32)
        if self.rank == 0:
            words.view(np.uint8)[:size] = np.frombuffer(news, np.uint8)
        told = torch.from_numpy(words)
        self.broadcast(told)
        return told.numpy().tobytes()[:size]

    def gather_rows(self, row: torch.Tensor) -> torch.Tensor:
        """Every rank's small tensor, by rank; by a sum, which every group has."""
        table = row.new_zeros((self.size, row.numel()))
        table[self.rank] = row
        flat = table.reshape(-1)
        self.sum(flat).wait()
        return flat.reshape(self.size, -1)

    def collect(self, news: bytes) -> list[bytes]:
        """What every rank says, by rank."""
        sizes = self.gather_rows(torch.tensor([len(news)])).flatten().tolist()
        limits.check("bytes to tell other ranks", max(sizes), _LONGEST_NEWS)
        row = np.zeros(-(-max(sizes) // 4) * 4, np.uint8)
        row[: len(news)] = np.frombuffer(news, np.uint8)
        table = self.gather_rows(torch.from_numpy(row.view(np.int32)))
        return [told.numpy().tobytes()[:size] for told, size in zip(table, sizes, strict=True)]

    def report(self, kind: str, group: int, start: float, end: float) -> None:
        """Tell whoever listens."""
        if self.listener is not None:
            self.listener(Span(kind, group, start, end))


class WeftChannel(Channel):
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
        self._line = Line(communicator)

    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Memory that the ranks of a machine share, as long as there is room."""
        if like.device.type != "cpu":
            msg = f"a parameter is on {like.device}; the group 'weft' moves CPU memory: use an NCCL group"
            raise InputError(msg)
        kind = np.int16 if like.dtype is torch.bfloat16 else _numpy_type(like.dtype)
        try:
            array = self.communicator.empty(elements, kind)
        except LimitError:  # private memory is only slower
            return torch.zeros(elements, dtype=like.dtype)
        array[...] = 0
        found = torch.from_numpy(array)
        return found.view(torch.bfloat16) if like.dtype is torch.bfloat16 else found

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> Cut:  # noqa: ARG002
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


class _WeftCut(Cut):
    def __init__(self, channel: WeftChannel, halves: Halves, group: int) -> None:
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


class TorchChannel(Channel):
    """Over a process group of torch: NCCL, gloo, or another.

    Parameters
    ----------
    group
        For DeAR alone: what others do on it would come in between.
    """

    ordered = False
    counts = True

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.name = dist.get_backend(group)
        self._device = device_of(group)
        self._failure: BaseException | None = None

    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Memory of the parameter's device."""
        return torch.zeros(elements, dtype=like.dtype, device=like.device)

    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> Cut:
        """Equal parts, as torch's reduce-scatter and all-gather have them."""
        return _TorchCut(self, elements, torch.empty(0, dtype=dtype, device=device), group)

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Add up, on the device of the group."""
        carrier = tensor.to(self._device)
        started = self.pending("vote", -1, lambda: dist.all_reduce(carrier, group=self.group, async_op=True))

        def wait() -> None:
            started.wait()
            if carrier is not tensor:
                tensor.copy_(carrier)

        return Pending(wait, started.is_done)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give everybody rank 0's."""
        carrier = tensor.to(self._device)
        dist.broadcast(carrier, dist.get_global_rank(self.group, 0), group=self.group)
        if carrier is not tensor:
            tensor.copy_(carrier)

    def failure(self) -> BaseException | None:
        """What a wait ended with."""
        return self._failure

    def close(self) -> None:
        """Leave the group that was made for DeAR."""
        dist.destroy_process_group(self.group)

    def pending(self, kind: str, group: int, start: Callable[[], dist.Work]) -> Pending:
        """Start something, and wait for it later; on a GPU, waiting means that its stream does."""
        self.check()
        started = time.perf_counter()
        work = start()

        def wait() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                self._failure = RuntimeFailure(f"{kind} over the {self.name} group: {error}")
                raise self._failure from error
            self.report(kind, group, started, time.perf_counter())

        return Pending(wait, work.is_completed)


class _TorchCut(Cut):
    def __init__(self, channel: TorchChannel, elements: int, like: torch.Tensor, group: int) -> None:
        self._channel, self._group = channel, group
        share = -(-elements // channel.size)
        self.padded = share * channel.size
        self.owned = tuple((rank * share, (rank + 1) * share) for rank in range(channel.size))
        self.mine = slice(*self.owned[channel.rank])
        self._shard = like.new_empty(share)

    def reduce(self, bucket: torch.Tensor) -> Pending:
        group, shard = self._channel.group, self._shard
        bucket.mul_(1 / self._channel.size)  # not every backend has an average
        return self._channel.pending(
            "reduce_scatter",
            self._group,
            lambda: dist.reduce_scatter_single(shard, bucket, group=group, async_op=True),
        )

    def own(self, bucket: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - it lies beside the bucket
        return self._shard

    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> Pending:
        # Not every backend lets what it sends lie inside what it receives.
        sent = self._shard if own is None else own.clone()

        group = self._channel.group
        return self._channel.pending(
            "all_gather",
            self._group,
            lambda: dist.all_gather_single(bucket, sent, group=group, async_op=True),
        )

    def all_reduce(self, bucket: torch.Tensor) -> Pending:
        group = self._channel.group
        bucket.mul_(1 / self._channel.size)
        return self._channel.pending(
            "all_reduce", self._group, lambda: dist.all_reduce(bucket, group=group, async_op=True)
        )


def _seen(bucket: torch.Tensor) -> Any:
    """The same memory as the runtime looks at it fastest; numpy has no bfloat16."""
    return bucket if bucket.dtype is torch.bfloat16 else bucket.numpy()


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))
