"""Lower bounds of this machine, which no runtime can beat, so that times can be judged without a peer.

With a topology that has speeds, that is Weft's own lower bound. Else it is memory: all ranks together must
read every input and write every result, and the machine can copy only so fast. The copying is measured at
each size, by as many threads as there are ranks or cores, so that what fits into caches is judged by caches.
Small sizes have no such limit: what they take is the time to tell each other, not to move bytes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft.bench.task import BenchTask
    from weft.topology import Topology

_LARGEST: Final = 32 << 20
"""Beyond every cache: larger arrays are copied no slower."""

_MEMORY: Final = 512 << 20
"""What the arrays of one measurement may take together."""

_START_S: Final = 60.0
_SECONDS: Final = 0.02
_REPEATS: Final = 3
SMALLEST: Final = 1 << 20
"""Bytes from which moving them is what takes the time."""


_Pair = tuple["NDArray[np.uint8]", "NDArray[np.uint8]"]


@dataclass(frozen=True)
class MachineLimit:
    """Seconds that a task takes at least, and why."""

    seconds: float
    kind: str


def topology_limit(task: BenchTask, topology: Topology) -> MachineLimit:
    """What the network allows."""
    from weft.bench.task import ITEM_BYTES
    from weft.bounds.collective_bound import kind_text, lower_bound

    item = ITEM_BYTES[task.dtype]
    found = lower_bound(topology, task.collective, task.size_bytes, element_bytes=item)
    return MachineLimit(found.seconds, kind_text(topology, task.collective, found.kind))


def memory_limit(task: BenchTask) -> MachineLimit | None:
    """What the memory of this machine allows, where that matters: copying reads and writes a byte each."""
    if task.size_bytes < SMALLEST:
        return None
    speed = copy_speed(task.size_bytes, task.ranks)
    return MachineLimit(task.touched_bytes / 2 / speed, f"memory: copies {speed / 1e9:.1f} GB/s")


def copy_speed(size_bytes: int, ranks: int) -> float:
    """Bytes that this machine copies per second, in arrays of this size that `ranks` processes would have."""
    threads = min(ranks, len(os.sched_getaffinity(0)))
    size = min(size_bytes, _LARGEST)
    pairs = max(1, min(-(-ranks // threads), _MEMORY // (2 * size * threads)))
    arrays = [
        [(np.ones(size, np.uint8), np.zeros(size, np.uint8)) for _ in range(pairs)] for _ in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        _start_threads(pool, threads)
        once = _copy_all(pool, arrays, 1)
        times = max(1, round(_SECONDS / max(once, 1e-7)))
        best = min(_copy_all(pool, arrays, times) for _ in range(_REPEATS)) / times
    return size * pairs * threads / best


def _start_threads(pool: ThreadPoolExecutor, count: int) -> None:
    """Start all threads of a pool, with signals held back meanwhile.

    A handler that raises within ``Thread.start`` leaves a thread that prints a traceback of its own.
    """
    together = threading.Barrier(count)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        wait([pool.submit(together.wait, _START_S) for _ in range(count)])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _copy_all(pool: ThreadPoolExecutor, arrays: list[list[_Pair]], times: int) -> float:
    """Seconds until every thread has copied all its arrays so many times."""

    def copy(mine: list[_Pair]) -> None:
        for _ in range(times):
            for source, target in mine:
                np.copyto(target, source)

    began = time.perf_counter()
    for done in [pool.submit(copy, mine) for mine in arrays]:
        done.result()
    return time.perf_counter() - began
