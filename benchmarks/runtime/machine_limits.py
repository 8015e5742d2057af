"""What this machine allows an all-reduce at most, measured beside the runtimes: memory, and loopback sockets.

**Memory.** Whatever an all-reduce does, every byte of all inputs is read at least once, and every byte of all
results is written at least once: 2 x ranks x size bytes. How fast that can be depends on the working set,
which is ranks x size bytes, for the result is in place of the input. So memory of just that size is shared
out over as many threads as there are ranks or cores, and gone through in four ways: copied from one half to
the other, changed in place, added from one half to the other, and filled. The best rate of all ways and
samples counts, also where a mixture as in an all-reduce could not have it, so that this is a limit. The speed
of copying alone is none: a copy to memory that is not in a cache also reads what it overwrites, which an
all-reduce in place has read anyway, and its two arrays have twice the working set.

**Wire.** In an all-reduce over sockets every rank sends at least 2 (ranks - 1) / ranks x size bytes, so all
together 2 (ranks - 1) x size. They go over one plain TCP connection from each rank to the next, all at once,
from and into buffers that stay in caches, by calls that send and receive and do nothing else.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_SAMPLE_S = 0.02
_BUFFER = 128 << 10
_LONGEST_S = 30.0

Way = Callable[[NDArray[np.int32]], Any]


def _copy(part: NDArray[np.int32]) -> None:
    half = part.size // 2
    np.copyto(part[half : 2 * half], part[:half])


def _add(part: NDArray[np.int32]) -> None:
    half = part.size // 2
    np.add(part[half : 2 * half], part[:half], out=part[half : 2 * half])


def _change(part: NDArray[np.int32]) -> None:
    np.negative(part, out=part)


def _fill(part: NDArray[np.int32]) -> None:
    part.fill(1)


WAYS: dict[str, tuple[Way, float]] = {
    "copy": (_copy, 1.0),
    "add": (_add, 1.5),
    "change": (_change, 2.0),
    "fill": (_fill, 1.0),
}
"""Ways to go through memory, and how many bytes each reads and writes for each byte that is there."""


class MemoryLimit:
    """The best rate at which this machine reads and writes the working set of one all-reduce.

    Parameters
    ----------
    ranks, size_bytes
        Of the all-reduce.

    Attributes
    ----------
    bytes_per_s
        Read and written, in the best sample of each way so far.
    """

    def __init__(self, ranks: int, size_bytes: int) -> None:
        self.touched_bytes = 2 * ranks * size_bytes
        threads = min(ranks, len(os.sched_getaffinity(0)))
        self._parts = [np.ones(ranks * size_bytes // threads // 4, np.int32) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self._once_s: dict[str, float] = {}
        self.bytes_per_s = dict.fromkeys(WAYS, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._parts.clear()

    @property
    def seconds(self) -> float:
        """What the all-reduce takes at least, whatever computes it."""
        return self.touched_bytes / max(self.bytes_per_s.values())

    def sample(self) -> None:
        """Go through the working set once more in every way, for some hundredths of a second each."""
        size = sum(part.nbytes for part in self._parts)
        for name, (way, touched) in WAYS.items():
            if name not in self._once_s:
                self._go_through(way, 1)  # the first touch of pages, and the start of threads
                self._once_s[name] = self._go_through(way, 1)
            times = max(1, round(_SAMPLE_S / self._once_s[name]))
            once = self._go_through(way, times) / times
            self._once_s[name] = min(self._once_s[name], once)
            self.bytes_per_s[name] = touched * size / self._once_s[name]

    def _go_through(self, way: Way, times: int) -> float:
        """Seconds until every thread has gone through its part so many times."""

        def repeat(part: NDArray[np.int32]) -> None:
            for _ in range(times):
                way(part)

        began = time.perf_counter()
        for done in [self._pool.submit(repeat, part) for part in self._parts]:
            done.result()
        return time.perf_counter() - began

    def to_dict(self) -> dict[str, Any]:
        """For a result file."""
        rates = {f"{name}_GBps": rate / 1e9 for name, rate in self.bytes_per_s.items()}
        return {"memory_s": self.seconds, "touched_bytes": self.touched_bytes, **rates}


class WireLimit:
    """The best rate of plain TCP connections from each rank to the next, all at once.

    Parameters
    ----------
    ranks
        How many; two of them have a connection each way.

    Attributes
    ----------
    bytes_per_s
        Over all connections together, in the best sample so far.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.bytes_per_s = 0.0
        self._resources = ExitStack()
        with ExitStack() as resources:
            self._pairs = [_connect(resources) for _ in range(ranks)]
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def seconds(self, size_bytes: int) -> float:
        """What an all-reduce over sockets takes at least."""
        return 2 * (self.ranks - 1) * size_bytes / self.bytes_per_s

    def sample(self, bytes_each: int = 64 << 20) -> None:
        """Send so many bytes over each connection, all at once."""
        together = threading.Barrier(2 * self.ranks + 1)
        threads = [
            threading.Thread(target=move, args=(end, bytes_each, together))
            for pair in self._pairs
            for move, end in zip((_send, _receive), pair, strict=True)
        ]
        for thread in threads:
            thread.start()
        together.wait(_LONGEST_S)
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        rate = self.ranks * bytes_each / (time.perf_counter() - began)
        self.bytes_per_s = max(self.bytes_per_s, rate)

    def to_dict(self, size_bytes: int) -> dict[str, Any]:
        """For a result file."""
        return {"wire_s": self.seconds(size_bytes), "wire_GBps": self.bytes_per_s / 1e9}


def _connect(resources: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = resources.enter_context(socket.create_connection(server.getsockname(), _LONGEST_S))
        receiver, _ = server.accept()
    resources.enter_context(receiver)
    for end in (sender, receiver):
        end.settimeout(_LONGEST_S)
    return sender, receiver


def _send(end: socket.socket, count: int, together: threading.Barrier) -> None:
    data = memoryview(bytes(_BUFFER))
    together.wait(_LONGEST_S)
    while count > 0:
        count -= end.send(data[:count])


def _receive(end: socket.socket, count: int, together: threading.Barrier) -> None:
    buffer = bytearray(_BUFFER)
    view = memoryview(buffer)
    together.wait(_LONGEST_S)
    while count > 0:
        count -= end.recv_into(view[: min(count, _BUFFER)])
