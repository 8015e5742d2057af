"""Send bytes to all ranks over collectives: `exchange_bytes` from every rank, `broadcast_bytes` from rank 0.

Collectives move arrays whose size all ranks know. So lengths go first, and bytes follow as whole numbers of
32 bits, which every engine and every process group can move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from weft import limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.runtime.communicator import Communicator

_MAX_BYTES: Final = 64 << 20


class WordCollectives(Protocol):
    """The two collectives that carry bytes; every rank makes the same calls in the same order."""

    rank: int

    def gather_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of every rank, one row for each; all have as many."""

    def broadcast_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of rank 0, on every rank; all have as many."""


class CommunicatorWords:
    """The collectives of a communicator.

    Parameters
    ----------
    kind
        The operation that the bytes are for, as errors name it.
    timeout
        Seconds for each collective; by default the communicator's own.
    """

    def __init__(self, communicator: Communicator, kind: str, timeout: float | None = None) -> None:
        self.rank, self._communicator = communicator.rank, communicator
        self._kind, self._timeout = kind, timeout

    def gather_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of every rank, one row for each."""
        gathered = self._communicator.all_gather(words, kind=self._kind, timeout=self._timeout)
        return np.asarray(gathered).reshape(self._communicator.size, -1)

    def broadcast_words(self, words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The words of rank 0, on every rank."""
        told: NDArray[np.int32] = self._communicator.broadcast(words, kind=self._kind, timeout=self._timeout)
        return told


def exchange_bytes(collectives: WordCollectives, payload: bytes) -> list[bytes]:
    """Give every rank the bytes of all ranks, by rank; every rank calls this.

    Raises
    ------
    LimitError
        If a rank has more than 64 MiB to send.
    """
    sizes = collectives.gather_words(_size_word(payload)).flatten().tolist()
    rows = collectives.gather_words(_to_words(payload, max(sizes)))
    return [row.tobytes()[:size] for row, size in zip(rows, sizes, strict=True)]


def broadcast_bytes(collectives: WordCollectives, payload: bytes) -> bytes:
    """Give every rank the bytes of rank 0; every rank calls this, and those of other ranks are ignored.

    Raises
    ------
    LimitError
        If there are more than 64 MiB to send.
    """
    mine = payload if collectives.rank == 0 else b""
    size = int(collectives.broadcast_words(_size_word(mine))[0])
    return collectives.broadcast_words(_to_words(mine, size)).tobytes()[:size]


def _size_word(payload: bytes) -> NDArray[np.int32]:
    return np.array([min(len(payload), np.iinfo(np.int32).max)], np.int32)


def _to_words(payload: bytes, size: int) -> NDArray[np.int32]:
    """The payload in as many words as `size` bytes take; all ranks refuse the same sizes."""
    limits.check("bytes to send to all ranks", size, _MAX_BYTES)
    return np.frombuffer(payload.ljust(-(-size // 4) * 4, b"\0"), np.int32).copy()
