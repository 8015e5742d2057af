"""Whether the native runtime holds memory only as long as it may, and refuses memory that does not fit."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import NoReturn

import numpy as np
import pytest

from weft import _core, _runtime
from weft.algorithms import registry
from weft.runtime.transport.arena_allocator import ArenaAllocator
from weft.runtime.transport.link_connections import IN_TURN
from weft.topology import load_topology

ARENA = 1 << 20
ELEMENTS = 64
BYTES = 4 * ELEMENTS
WAIT_MS = 20_000


class Interrupted(Exception):
    """The exception of a test's signal handler."""


@pytest.fixture
def executor() -> Iterator[_runtime.Executor]:
    """Rank 0 of two, whose peer never answers."""
    host = _runtime.Host(0, 1, ARENA, crowded=True, readable=False)
    host.start_watch(30_000, 60_000, [0], 2)
    near, far = socket.socketpair()
    with near, far:
        yield _runtime.Executor(host, 0, 1, 0, [0, 1], [0, -1], [[], [near.fileno()]], [0, 0], [0, 0])
    host.close()


@pytest.fixture
def all_reduce() -> _runtime.Script:
    """Rank 0's part of an all-reduce of 64 elements between two ranks."""
    return write_all_reduce(max_segments=1000)


def write_all_reduce(max_segments: int) -> _runtime.Script:
    schedule = registry.find("ring").build(load_topology("ring:2"), "all_reduce")
    start = np.linspace(0, ELEMENTS, len(schedule.weights) + 1).astype(np.int64)
    return _runtime.write_script(
        table=schedule.table,
        ranks=2,
        slots=1,
        start=start,
        pairs=False,
        elsewhere=True,
        output_start=np.zeros(0, np.int64),
        segment=ELEMENTS,
        rank=0,
        max_segments=max_segments,
        connections=np.ones(2, np.int32),
        out=np.full(2, IN_TURN, np.int32),
        in_=np.full(2, IN_TURN, np.int32),
        of_route=np.empty(0, np.int32),
        needs_all=True,
    )


def test_too_many_segments_are_the_error_of_the_core() -> None:
    # The two extensions translate this exception together.
    with pytest.raises(_core.TooMany, match="segments"):
        write_all_reduce(max_segments=1)


@pytest.fixture
def exchange() -> _runtime.Script:
    """64 elements out of the buffer to rank 1, and as many from it into the output."""
    return _runtime.write_exchange([(1, ELEMENTS, ELEMENTS, 0, 0, 7)], ELEMENTS, np.ones(2, np.int32))


def open_shared_memory() -> list[str]:
    """The descriptors of this process that stand for anonymous shared memory."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sorted(path.name for path in links if "memfd:weft" in str(path.readlink()))


def run(
    executor: _runtime.Executor, script: _runtime.Script, buffer: int, output: int
) -> _runtime.OperationResult:
    """Run a script on so many bytes of memory, with a short timeout."""
    memory = (bytearray(buffer), bytearray(output), bytearray(BYTES))
    return executor.run(script, 1, *memory, False, "float32", "sum", 200)


def test_a_host_that_cannot_be_made_leaves_no_memory_open() -> None:
    before = open_shared_memory()
    for arena_bytes in (1 << 62, (1 << 63) - 1):
        with pytest.raises((OSError, RuntimeError)):
            _runtime.Host(0, 1, arena_bytes, crowded=True, readable=False)
    assert open_shared_memory() == before


def test_a_buffer_that_is_too_short_for_the_script_is_refused(
    executor: _runtime.Executor, all_reduce: _runtime.Script
) -> None:
    with pytest.raises(ValueError, match="buffer: the script needs 256 bytes, and this has 252"):
        run(executor, all_reduce, BYTES - 4, BYTES - 4)
    assert run(executor, all_reduce, BYTES, BYTES).status == _runtime.Status.timed_out


@pytest.mark.parametrize(("buffer", "output", "short"), [(BYTES - 4, BYTES, "buffer"), (BYTES, 0, "output")])
def test_an_exchange_checks_both_arrays(
    executor: _runtime.Executor, exchange: _runtime.Script, buffer: int, output: int, short: str
) -> None:
    with pytest.raises(ValueError, match=f"{short}: the script needs 256 bytes"):
        run(executor, exchange, buffer, output)


def test_a_repeated_operation_on_arrays_that_are_too_short_is_refused(
    executor: _runtime.Executor, all_reduce: _runtime.Script
) -> None:
    scratch = bytearray(BYTES)
    with pytest.raises(ValueError, match="buffer: the script needs 256 bytes, and this has 252"):
        _runtime.RepeatedOperation(
            executor, all_reduce, 1, scratch, BYTES - 4, (0, 0), False, "float32", "sum"
        )


def test_an_array_is_free_again_after_an_interrupted_operation(
    executor: _runtime.Executor, all_reduce: _runtime.Script
) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Interrupted

    class Array(bytearray):
        dtype = "float32"

    array, lock = Array(BYTES), _runtime.OperationLock()
    operation = _runtime.RepeatedOperation(
        executor, all_reduce, 1, bytearray(BYTES), BYTES, (0, BYTES), False, Array.dtype, "sum"
    )
    repeated = _runtime.RepeatedOperations(_runtime.OperationRing(1), Array, lock)
    repeated.learn("prepared", operation, Array.dtype, "sum", "")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            repeated.run(array, "sum", "", WAIT_MS / 1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    array.clear()  # a BufferError while anybody holds its memory
    assert not lock.locked()


def test_a_lock_of_operations_waits_for_its_time_and_hears_signals() -> None:
    lock = _runtime.OperationLock()
    with lock:
        assert lock.locked()
        assert not lock.acquire(timeout=0.01)
        heard, before = list[int](), signal.getsignal(signal.SIGALRM)
        signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert not lock.acquire(timeout=0.5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert heard == [signal.SIGALRM]
        timer = threading.Timer(0.05, lock.release)
        timer.start()
        assert lock.acquire(timeout=30)
        timer.join()
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="nobody holds"):
        lock.release()


def test_shared_memory_of_another_layout_is_refused() -> None:
    mine, other = (_runtime.Host(rank, 2, ARENA, crowded=True, readable=False) for rank in (0, 1))
    with pytest.raises(RuntimeError, match="another size"):
        mine.attach(1, os.getpid(), other.descriptor, 2 * ARENA)
    word = struct.unpack("=Q", os.pread(other.descriptor, 8, 0))[0]
    os.pwrite(other.descriptor, struct.pack("=Q", word ^ 1), 0)
    with pytest.raises(RuntimeError, match="another build"):
        mine.attach(1, os.getpid(), other.descriptor, ARENA)


@pytest.fixture
def hosts() -> Iterator[list[_runtime.Host]]:
    """Two ranks of one machine that share their memory, both of them in this process."""
    made = [_runtime.Host(rank, 2, ARENA, crowded=True, readable=True) for rank in (0, 1)]
    for rank, host in enumerate(made):
        host.attach(1 - rank, os.getpid(), made[1 - rank].descriptor, ARENA)
    for host in made:
        host.start_watch(30_000, 60_000, [0, 1], 2)
    yield made
    for host in made:
        host.close()


@pytest.mark.parametrize("there", [1, ELEMENTS, 1 << 50])
@pytest.mark.parametrize("shared", [True, False])
def test_a_rank_never_reads_beyond_the_array_of_its_peer(
    hosts: list[_runtime.Host], shared: bool, there: int
) -> None:
    ranks = [
        _runtime.Executor(host, 0, 1, rank, [0, 1], [0, 1], [[], []], [1, 1], [0, 0])
        for rank, host in enumerate(hosts)
    ]
    kind = np.dtype(np.float32)
    arrays = [
        ArenaAllocator(host).empty(ELEMENTS, kind) if shared else np.empty(ELEMENTS, kind) for host in hosts
    ]
    arrays[1][:] = 7
    one = np.ones(2, np.int32)
    scripts = [
        _runtime.write_exchange([(1, ELEMENTS, -1, 0, 0, 5)], ELEMENTS, one),
        _runtime.write_exchange([(0, -1, ELEMENTS, 0, there, 5)], ELEMENTS, one),
    ]

    def run_rank(rank: int) -> _runtime.OperationResult:
        array = arrays[rank]
        return ranks[rank].run(scripts[rank], 1, array, array, b"", True, "float32", "sum", WAIT_MS)

    with ThreadPoolExecutor() as threads:
        endings = list(threads.map(run_rank, (0, 1)))
    assert [ending.status for ending in endings] == [_runtime.Status.differs] * 2
    assert [ending.rank for ending in endings] == [1, 0]
    assert (arrays[1] == 7).all()


@pytest.mark.parametrize(("here", "there"), [(-1, 0), (0, -1), (1 << 62, 0), (0, 1 << 62)])
def test_an_exchange_of_elements_that_no_memory_has_is_refused(here: int, there: int) -> None:
    with pytest.raises(ValueError, match="a place"):
        _runtime.write_exchange([(1, ELEMENTS, -1, here, there, 5)], ELEMENTS, np.ones(2, np.int32))
