"""Allocator of the arena, the memory that the ranks of one machine share.

The C++ half, which creates and maps the memory, is ``cpp/runtime/shared_memory.cpp``.
"""

from __future__ import annotations

import bisect
import os
import resource
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft import limits
from weft.errors import InputError, LimitError
from weft.units import parse_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft import _runtime

_ALIGNMENT: Final = 4096
"""A page, so that pages can be taken away from the others without touching another array."""

_SMALLEST: Final = 1 << 20


def find_arena_bytes(local_ranks: int) -> int:
    """Bytes for `Communicator.empty`: what ``WEFT_ARENA`` says, else what the address space has room for.

    Every rank of a machine maps the arenas of all of them; only what is used takes memory.

    Raises
    ------
    InputError
        If ``WEFT_ARENA`` is not a size.
    """
    said = os.environ.get("WEFT_ARENA")
    if said:
        try:
            size = parse_size(said)
        except InputError as error:
            raise InputError(f"WEFT_ARENA: {error}") from error
        limits.check("bytes of WEFT_ARENA", size, limits.MAX_ARENA_BYTES)
        return -(-size // _ALIGNMENT) * _ALIGNMENT
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return limits.DEFAULT_ARENA_BYTES
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    share = (limit - used) // (2 * local_ranks)
    return max(_SMALLEST, min(limits.DEFAULT_ARENA_BYTES, share // _ALIGNMENT * _ALIGNMENT))


class ArenaAllocator:
    """First-fit allocation from one block; what is freed joins its free neighbours.

    Parameters
    ----------
    host
        The shared memory whose arena this is.
    """

    def __init__(self, host: _runtime.Host) -> None:
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
        raise LimitError(f"the shared arena has no room for {size:,} bytes more; it has {self.size:,} in all")

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

    def __init__(self, address: int, size: int, host: _runtime.Host) -> None:
        self._host = host
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
