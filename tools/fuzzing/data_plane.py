"""Fuzz targets that read heartbeats and frames from data connections."""

from __future__ import annotations

import fcntl
import functools
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from runtime.test_heartbeats import word as heartbeat_word

from fuzzing.mutate import change_bytes
from fuzzing.schedule_files import lower
from fuzzing.target import Chance, WrongResult
from weft import _runtime, limits
from weft.algorithms import registry
from weft.schedule import Schedule
from weft.topology import load_topology

_JOB_RANKS: Final = 33


@functools.cache
def _watching_host() -> _runtime.Host:
    host = _runtime.Host(0, 1, 1 << 20, crowded=True, readable=False)
    host.start_watch(30_000, 60_000, [0], _JOB_RANKS)
    return host


def make_heartbeats(chance: Chance) -> bytes:
    """Words from every other rank; most with the checksum that fits."""
    odd = (-1, 0, 1, 3, _JOB_RANKS - 1, _JOB_RANKS, 2**31 - 1, -(2**31))
    said = []
    for _ in range(1, _JOB_RANKS):
        words = b""
        for _ in range(chance.randrange(1, 50)):
            cut = (chance.choice(odd), chance.choice(odd), chance.choice(odd))
            whom = chance.choice(odd), chance.choice(odd), chance.choice(odd)
            news = (chance.randrange(3), 11, whom[0], whom[1], whom[2], chance.randrange(12))
            kind = chance.choice((*range(10), 2**32 - 1))
            words += heartbeat_word(kind, chance.choice(odd), cut, news)
        said.append(change_bytes(words, chance) if chance.random() < 0.5 else words)
    return msgspec.msgpack.encode(said)


def read_heartbeats(data: bytes) -> bool:
    """Send the words, and check what rank 0 believes."""
    host = _watching_host()
    pairs = [socket.socketpair() for _ in range(1, _JOB_RANKS)]
    beats = _runtime.Heartbeats(host, [-1, *(near.fileno() for near, _ in pairs)], 30_000, 60_000)
    try:
        for (_, far), words in zip(pairs, msgspec.msgpack.decode(data, type=list[bytes]), strict=True):
            far.sendall(words)
        deadline = time.monotonic() + 5
        while any(struct.unpack("i", fcntl.ioctl(near, termios.FIONREAD, b"\0" * 4))[0] for near, _ in pairs):
            if time.monotonic() > deadline:
                msg = "what was said is not heard"
                raise WrongResult(msg)
            time.sleep(0.0005)
    finally:
        beats.close()
        _close(pairs)
    cut = host.cut
    if cut is not None and not (0 <= cut[0] < cut[1] < _JOB_RANKS and cut[2] >= 0):
        msg = f"a cut between {cut}"
        raise WrongResult(msg)
    host.mend()
    return True


def _close(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    for pair in pairs:
        pair[0].close()
        pair[1].close()


_ELEMENTS: Final = 3001
_FINGERPRINT: Final = 0x1234_5678_9ABC
_REPLAY_MS: Final = 30


@dataclass(frozen=True)
class Traffic:
    """What rank 1 sends to rank 0 in one operation, over each of its connections."""

    schedule: Schedule
    checksums: bool
    streams: int
    said: tuple[bytes, ...]


class FreshPeers(threading.local):
    """Numbers of ranks that were never lost: a new host for each input would take most of the time."""

    _left: list[int]

    def __init__(self) -> None:
        self._left = []

    @contextmanager
    def executor(self, rank: int, traffic: Traffic, ends: list[socket.socket]) -> Iterator[_runtime.Executor]:
        """An executor of two ranks, of which the other is at the other ends."""
        if not self._left:
            self._host = _runtime.Host(0, 1, 1 << 16, crowded=True, readable=False)
            self._host.start_watch(30_000, 60_000, [0], limits.MAX_JOB_RANKS)
            self._left = list(range(1, limits.MAX_JOB_RANKS))
        job, local = [0, 0], [-1, -1]
        sockets: list[list[int]] = [[], []]
        job[1 - rank], local[rank], sockets[1 - rank] = self._left.pop(), 0, [end.fileno() for end in ends]
        self._host.reset(0)
        self._host.mend()
        executor = _runtime.Executor(
            self._host, 0, 1, rank, job, local, sockets, [0, 0], [traffic.checksums] * 2
        )
        try:
            yield executor
        finally:
            executor.close()


_fresh_peers: Final = (FreshPeers(), FreshPeers())


def _run(
    rank: int, traffic: Traffic, ends: list[socket.socket], timeout_ms: int
) -> tuple[_runtime.Status, Any]:
    script = lower(traffic.schedule, rank, _ELEMENTS, 500, traffic.streams)
    assert script is not None
    array = np.full(_ELEMENTS, rank + 1, np.float32)
    scratch = np.zeros((script.scratch_elements + script.stage_elements) * 4, np.uint8)
    with _fresh_peers[rank].executor(rank, traffic, ends) as executor:
        ending = executor.run(
            script, _FINGERPRINT, array, array, scratch, False, "float32", "sum", timeout_ms
        )
    return ending.status, array


@functools.cache
def recorded_traffic() -> list[Traffic]:
    """Recorded between two executors."""
    found = []
    for name in ("direct", "ring", "recursive_doubling"):
        schedule = registry.find(name).build(load_topology("fullmesh:2"), "all_reduce")
        for checksums in (True, False):
            for streams in (1, 2):
                traffic = Traffic(schedule, checksums, streams, ())
                found.append(Traffic(schedule, checksums, streams, _record(traffic)))
    return found


def _record(traffic: Traffic) -> tuple[bytes, ...]:
    pairs = [[socket.socketpair() for _ in range(traffic.streams)] for _ in range(2)]
    statuses: list[_runtime.Status] = []

    def run(rank: int) -> None:
        statuses.append(_run(rank, traffic, [here for here, _ in pairs[rank]], 30_000)[0])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    said = [b""] * traffic.streams
    while any(thread.is_alive() for thread in threads):
        for rank, stream in ((rank, stream) for rank in range(2) for stream in range(traffic.streams)):
            with suppress(BlockingIOError):
                data = pairs[rank][stream][1].recv(1 << 16, socket.MSG_DONTWAIT)
                pairs[1 - rank][stream][1].sendall(data)
                said[stream] += data * rank
        time.sleep(0.0002)
    for some in pairs:
        _close(some)
    assert statuses == [_runtime.Status.done] * 2, statuses
    return tuple(said)


_AT_ONCE: Final = 32
"""Recordings of one input: a replay that is cut short mostly waits, so many run at once."""


def make_traffic(chance: Chance) -> bytes:
    """The number of each recording, and what is sent instead over each connection."""
    return msgspec.msgpack.encode([_change_traffic(chance) for _ in range(_AT_ONCE)])


def _change_traffic(chance: Chance) -> tuple[int, list[bytes]]:
    number = chance.randrange(len(recorded_traffic()))
    said = list(recorded_traffic()[number].said)
    for _ in range(chance.choice((0, 1, 1, 2))):
        stream = chance.randrange(len(said))
        said[stream] = change_bytes(said[stream], chance, chance.choice(recorded_traffic()).said[0])
    if chance.random() < 0.2:  # an opening of another operation, or of none, with the checksum that fits
        opening = bytearray(said[0][:28].ljust(28, b"\0"))
        opening[chance.randrange(28)] ^= 1 << chance.randrange(8)
        said[0] = bytes(opening) + struct.pack("<I", _runtime.crc32c(bytes(opening))) + said[0][32:]
    return number, said


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE)


def read_traffic(data: bytes) -> bool:
    """Replay each to a rank that runs an all-reduce; a sum that passes its checksums is right."""
    found = msgspec.msgpack.decode(data, type=list[tuple[int, tuple[bytes, ...]]])
    return any(list(_threads().map(lambda one: _replay(*one), found)))


def _replay(number: int, said: tuple[bytes, ...]) -> bool:
    traffic = recorded_traffic()[number]
    pairs = [socket.socketpair() for _ in said]
    try:
        for (_, there), words in zip(pairs, said, strict=True):
            there.setblocking(False)
            with suppress(BlockingIOError):
                there.sendall(words)
            there.shutdown(socket.SHUT_WR)
        status, array = _run(0, traffic, [here for here, _ in pairs], _REPLAY_MS)
    finally:
        _close(pairs)
    if said == traffic.said and status not in (_runtime.Status.done, _runtime.Status.timed_out):
        msg = f"nothing was changed, and it ended with {status}"
        raise WrongResult(msg)
    if traffic.checksums and status == _runtime.Status.done and not (array == 3).all():
        msg = f"{int((array != 3).sum())} elements of a sum are wrong"
        raise WrongResult(msg)
    return status == _runtime.Status.done
