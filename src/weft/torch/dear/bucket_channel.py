"""The interface between DeAR and what sends its buckets: Weft's runtime, or a process group of torch.

A `BucketCut` has the operations of one bucket: it knows which part of the bucket this rank owns between the
two halves of an all-reduce. Operations are started, and waited for later; on Weft's runtime they end in the
order in which they were started, on other groups in any order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch

from weft.runtime.byte_exchange import broadcast_bytes, exchange_bytes
from weft.training.iteration import COLLECTIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray


COMMUNICATION: Final = (*COLLECTIVES, "vote")
"""Kinds of spans during which data is sent."""

_NO_CONTEXT: Final = nullcontext()


class OperationSpan(NamedTuple):
    """The start and end of an operation, by `time.perf_counter`."""

    kind: str
    group: int
    start: float
    end: float


class StartedOperation(Protocol):
    """An operation that was started: the runtime's `Handle`, or torch's ``Work`` with these methods."""

    def is_done(self) -> bool:
        """Return whether `wait` would return at once."""

    def wait(self) -> Any:
        """Return once the operation is over; raise what went wrong."""


class BucketCut(ABC):
    """The operations of one bucket.

    Attributes
    ----------
    mine
        The elements that this rank owns between the halves.
    padded
        The number of elements that a bucket must have, with padding at its end.
    """

    mine: slice
    padded: int

    @abstractmethod
    def reduce(self, bucket: torch.Tensor) -> StartedOperation:
        """Start the first half: average, each rank its own part."""

    @abstractmethod
    def own(self, bucket: torch.Tensor) -> torch.Tensor:
        """Return this rank's own part, of averages after `reduce`; it may be changed before `gather`."""

    @abstractmethod
    def gather(self, bucket: torch.Tensor, own: torch.Tensor | None) -> StartedOperation:
        """Start the second half: send every rank's own part to all ranks; by default that of `reduce`."""

    @abstractmethod
    def all_reduce(self, bucket: torch.Tensor) -> StartedOperation:
        """Start to average the whole bucket."""


class BucketChannel(ABC):
    """The ranks that train together, and the operations between them.

    Attributes
    ----------
    ordered
        Whether operations work on the data in the order in which they were started, without waits in between.
    counts
        Whether torch counts a received result as a change of the tensor, as it does a user's changes.
    listener
        Called with every operation's times; None where nobody wants them, since to take them costs something.
    clock
        The clock; while DeAR measures, one that waits for the work of accelerators.
    """

    rank: int
    size: int
    name: str
    ordered: bool
    counts: bool
    listener: Callable[[OperationSpan], None] | None = None
    clock: Callable[[], float] = time.perf_counter

    @abstractmethod
    def buffer(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        """Return a buffer of zeros for a bucket, in memory that is sent fastest."""

    @abstractmethod
    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:
        """Return the operations of a bucket of so many elements; `group` is its number in reports."""

    @abstractmethod
    def sum(self, tensor: torch.Tensor) -> StartedOperation:
        """Start adding up a small tensor of all ranks, in place."""

    def repeated_sum(self, tensor: torch.Tensor) -> Callable[[], StartedOperation]:
        """Return a function that starts adding up the same small tensor of all ranks, in place."""
        return partial(self.sum, tensor)

    def together(self) -> AbstractContextManager[None]:
        """Start several operations within a context, at less cost; none may be waited for in it."""
        return _NO_CONTEXT

    @abstractmethod
    def broadcast(self, tensor: torch.Tensor) -> None:
        """Give all ranks rank 0's tensor, in place."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Return the failure that ended communication, if there was one."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def check(self) -> None:
        """Raise the failure that ended communication, if there was one."""
        if (failure := self.failure()) is not None:
            raise failure

    def share(self, message: bytes) -> bytes:
        """Return the message of rank 0, on every rank; every rank calls this."""
        return message if self.size == 1 else broadcast_bytes(self, message)

    def broadcast_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the words of rank 0, on every rank."""
        self.broadcast(torch.from_numpy(words))
        return words

    def gather_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the words of every rank, one row for each."""
        return self.gather_rows(torch.from_numpy(words)).numpy()

    def gather_rows(self, row: torch.Tensor) -> torch.Tensor:
        """Return the small tensors of all ranks, by rank; as a sum, which every backend supports."""
        table = row.new_zeros((self.size, row.numel()))
        table[self.rank] = row
        flat = table.reshape(-1)
        self.sum(flat).wait()
        return flat.reshape(self.size, -1)

    def collect(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, by rank; every rank calls this."""
        return exchange_bytes(self, message)

    def timed(self, kind: str, group: int = -1) -> AbstractContextManager[None]:
        """Report how long a block takes, unless it fails or nobody listens."""
        return _NO_CONTEXT if self.listener is None else self._time(kind, group)

    @contextmanager
    def _time(self, kind: str, group: int) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.report(kind, group, begun, time.perf_counter())

    def report(self, kind: str, group: int, start: float, end: float) -> None:
        """Call the listener, if there is one."""
        if self.listener is not None:
            self.listener(OperationSpan(kind, group, start, end))
