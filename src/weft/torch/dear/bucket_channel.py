"""What DeAR needs of those who move its buckets: Weft's own runtime, or any process group of torch.

A `BucketCut` is one bucket's way through a channel: it knows which part of the bucket this rank owns between
the two halves of an all-reduce. Communication is started, and waited for later; on Weft's runtime it ends in
the order in which it was started, on other groups in any order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from weft.runtime.byte_exchange import broadcast_bytes, exchange_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


COLLECTIVES: Final = ("reduce_scatter", "all_gather", "all_reduce", "vote")


class OperationSpan(NamedTuple):
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


class BucketCut(ABC):
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


class BucketChannel(ABC):
    """The ranks that train together, and what moves their gradients.

    Attributes
    ----------
    ordered
        Whether what was started later also works on the data later, without waiting in between.
    counts
        Whether torch counts what comes in as a change of the tensor, as it does a user's changes.
    clock
        What time is read from; while DeAR measures, one that waits for the work of accelerators.
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
        """Room for a bucket, where it is moved fastest; zeros."""

    @abstractmethod
    def cut(self, elements: int, dtype: torch.dtype, device: torch.device, group: int) -> BucketCut:
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
        return news if self.size == 1 else broadcast_bytes(self, news)

    def broadcast_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of rank 0, on every rank."""
        self.broadcast(torch.from_numpy(words))
        return words

    def gather_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of every rank, one row for each."""
        return self.gather_rows(torch.from_numpy(words)).numpy()

    def gather_rows(self, row: torch.Tensor) -> torch.Tensor:
        """Every rank's small tensor, by rank; by a sum, which every group has."""
        table = row.new_zeros((self.size, row.numel()))
        table[self.rank] = row
        flat = table.reshape(-1)
        self.sum(flat).wait()
        return flat.reshape(self.size, -1)

    def collect(self, news: bytes) -> list[bytes]:
        """What every rank says, by rank."""
        return exchange_bytes(self, news)

    def report(self, kind: str, group: int, start: float, end: float) -> None:
        """Tell whoever listens."""
        if self.listener is not None:
            self.listener(OperationSpan(kind, group, start, end))
