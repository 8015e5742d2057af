"""A rank of a soak test with a fault on purpose; the first word says which one."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from weft.errors import PeerLost
from weft.runtime import Communicator
from weft.runtime.engines.native_engine import NativeEngine
from weft.soak import worker


def is_rank(rank: int) -> bool:
    """Whether this is that rank of the job."""
    return os.environ["WEFT_RANK"] == str(rank)


def flip_a_bit() -> None:
    """From its twentieth call on, all_reduce is wrong in one bit on rank 1."""
    real, calls = Communicator.all_reduce, itertools.count(1)

    def all_reduce(self: Communicator, array: Any, *words: Any, async_op: bool = False, **more: Any) -> Any:
        result = real(self, array, *words, async_op=async_op, **more)
        if is_rank(1) and next(calls) >= 20 and array.size and not async_op:
            bits = np.dtype(f"u{array.itemsize}")
            last = array[-1:] if array.ndim == 1 else array[-1:, -1:]
            last.view(bits)[...] ^= bits.type(1)
        return result

    Communicator.all_reduce = all_reduce


def sleep() -> None:
    """Rank 1 does not come to its fifth reduce."""
    real, calls = Communicator.reduce, itertools.count(1)

    def reduce(self: Communicator, *words: Any, **options: Any) -> Any:
        if is_rank(1) and next(calls) == 5:
            time.sleep(600)
        return real(self, *words, **options)

    Communicator.reduce = reduce


def crash() -> None:
    """Rank 0 is killed at its tenth all_reduce, which is not in the plan."""
    real, calls = Communicator.all_reduce, itertools.count(1)

    def all_reduce(self: Communicator, *words: Any, **options: Any) -> Any:
        if is_rank(0) and next(calls) == 10:
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(self, *words, **options)

    Communicator.all_reduce = all_reduce


def blame_another() -> None:
    """Another rank is named than the one that was killed."""
    real = NativeEngine._fail

    def fail(self: NativeEngine, *words: Any) -> NoReturn:
        try:
            real(self, *words)
        except PeerLost as error:
            other = next(member for member in self.members if member.pid != error.pid)
            raise PeerLost(other.rank, other.host, other.pid, error.op) from None

    NativeEngine._fail = fail


def leak() -> None:
    """Three descriptors are left open with every communicator of all ranks."""
    real = worker.init

    def init(**options: Any) -> Communicator:
        for _ in range(3):
            os.open(os.devnull, os.O_RDONLY)
        return real(**options)

    worker.init = init


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault for fault in (flip_a_bit, sleep, crash, blame_another, leak)
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    sys.exit(worker.main())
