"""Memory that the ranks of one machine share: who may use which part of this rank's arena."""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import LimitError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft import _core

_ALIGNMENT: Final = 4096


class Arena:
    """First-fit allocation from one block; what is freed joins its free neighbours.

    Parameters
    ----------
    host
        The shared memory whose arena this is.
    """

    def __init__(self, host: _core.Host) -> None:
        self.host = host
        self.address, self.size = host.arena_address, host.arena_bytes
        self._free: list[tuple[int, int]] = [(0, self.size)]  # (offset, bytes), ascending
        self._lock = threading.Lock()
        # Arrays end whenever Python collects garbage, even within `allocate`: what they leave is taken later.
        self._left: deque[tuple[int, int]] = deque()

    def allocate(self, size: int) -> int:
        """Offset of `size` bytes that nobody else uses.

        Raises
        ------
        LimitError
            If there is no room.
        """
        wanted = max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT
        with self._lock:
            while self._left:
                self._join(*self._left.popleft())
            for index, (offset, room) in enumerate(self._free):
                if room >= wanted:
                    if room == wanted:
                        del self._free[index]
                    else:
                        self._free[index] = (offset + wanted, room - wanted)
                    return offset
        msg = f"the shared arena has no room for {size:,} bytes more; it has {self.size:,} in all"
        raise LimitError(msg)

    def free(self, offset: int, size: int) -> None:
        """Give back what `allocate` gave."""
        self._left.append((offset, size))

    def _join(self, offset: int, size: int) -> None:
        size = max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT
        index = bisect.bisect(self._free, (offset, 0))
        if index < len(self._free) and offset + size == self._free[index][0]:
            size += self._free.pop(index)[1]
        if index and sum(self._free[index - 1]) == offset:
            offset, before = self._free.pop(index - 1)
            size += before
            index -= 1
        self._free.insert(index, (offset, size))

    def empty(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """One-dimensional array in the arena; its memory comes back when nothing refers to it any more."""
        size = elements * dtype.itemsize
        offset = self.allocate(size)
        holder = _Holder(self.address + offset, size, self.host)
        weakref.finalize(holder, self.free, offset, size)
        return np.frombuffer(np.asarray(holder), dtype, count=elements) if size else np.empty(0, dtype)


class _Holder:
    """Bytes at an address, for numpy; keeps the shared memory mapped."""

    def __init__(self, address: int, size: int, host: _core.Host) -> None:
        self._host = host
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
