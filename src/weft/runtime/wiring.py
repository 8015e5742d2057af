"""How a rank reaches the others: memory inside one machine, sockets between machines.

Everything that has to be agreed on goes through the roster, whose members have proved who they are. A data
connection proves itself with a code from the token that its listener handed out there.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np

from weft import _core, limits
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.gate import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.runtime.roster import Roster

FROZEN_AFTER_MS: Final = 5000
TRANSPORTS: Final = ("auto", "tcp")

_TOKEN_BYTES: Final = 32
_KNOCK: Final = struct.Struct("!I32s")
_LOOPBACK: Final = "127.0.0.1"

_HEARTBEAT: Final = limits.MAX_JOB_RANKS
"""A line is named by the rank that knocks: the rank itself for data, and so much more for heartbeats."""

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 6))
"""The kernel gives up a silent peer after eight seconds: after the heartbeats, or where those see nothing."""


class _Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank tells the others about itself."""

    pid: int
    descriptor: int
    arena_bytes: int
    probe: int
    word: int
    address: Annotated[str, msgspec.Meta(max_length=255)]
    port: int
    token: bytes


@dataclass(slots=True)
class Wires:
    """What connects one rank to all others.

    Parameters
    ----------
    host
        The memory it shares with the ranks of its machine.
    executor
        What moves data.
    sockets
        One for each rank that is reached through one.
    heartbeats
        The watch over other machines, if there are any, and its sockets.
    can_read
        The ranks whose memory this process may read, and that may read its own.
    """

    host: _core.Host
    executor: _core.Executor
    sockets: dict[int, socket.socket] = field(default_factory=dict)
    can_read: frozenset[int] = frozenset()
    heartbeats: _core.Heartbeats | None = None
    watched: dict[int, socket.socket] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of everything; the others see that this rank left on purpose."""
        if self.heartbeats is not None:
            self.heartbeats.close()
        self.executor.close()
        self.host.close()
        for connection in (*self.sockets.values(), *self.watched.values()):
            connection.close()


def connect(roster: Roster, *, transport: str, arena_bytes: int, timeout: float) -> Wires:
    """Connect this rank to all others; every rank calls this.

    Parameters
    ----------
    roster
        Who they are.
    transport
        ``"auto"``: memory within a machine, sockets between machines. ``"tcp"``: sockets everywhere.
    arena_bytes
        Room for shared tensors; only what is used takes memory.
    timeout
        Seconds for all of it.

    Raises
    ------
    InputError
        If the transport is unknown.
    TimedOut, PeerLost, RuntimeFailure
        If somebody cannot be reached.
    """
    if transport not in TRANSPORTS:
        msg = f"transport {transport!r} is unknown, expected {' or '.join(TRANSPORTS)}"
        raise InputError(msg)
    here = roster.members[roster.rank].boot_id
    neighbours = [member.rank for member in roster.members if member.boot_id == here]
    local = [neighbours.index(rank) if rank in neighbours else -1 for rank in range(roster.size)]
    host = _core.Host(local[roster.rank], len(neighbours), arena_bytes)
    word = np.frombuffer(secrets.token_bytes(8), np.uint64).copy()
    others = [rank for rank in range(roster.size) if rank != roster.rank]
    remote = [rank for rank in others if local[rank] < 0 or transport == "tcp"]
    alone = len(neighbours) == roster.size
    hub = {_HEARTBEAT + rank for rank in (others if roster.rank == 0 else [0]) if not alone}
    with _listen(_LOOPBACK if alone else roster.address, timeout) as listener:
        address, port = listener.getsockname()[:2]
        token = secrets.token_bytes(_TOKEN_BYTES)
        probe = int(word.__array_interface__["data"][0])
        mine = _Card(os.getpid(), host.descriptor, arena_bytes, probe, int(word[0]), address, port, token)
        cards = [
            msgspec.msgpack.decode(card, type=_Card)
            for card in roster.exchange(msgspec.msgpack.encode(mine), timeout)
        ]
        for rank in neighbours:
            if rank != roster.rank:
                _attach(host, local[rank], rank, cards[rank])
        readable = {
            rank
            for rank in neighbours
            if rank != roster.rank and host.can_read(local[rank], cards[rank].probe, cards[rank].word)
        }
        lines = _connect_all(roster.rank, listener, cards, {*remote, *hub}, token, timeout)
    agreed = [set(msgspec.msgpack.decode(part, type=list[int])) for part in _tell(roster, readable, timeout)]
    can_read = frozenset(rank for rank in readable if roster.rank in agreed[rank])
    sockets = {rank: lines[rank] for rank in remote}
    watched = {line - _HEARTBEAT: lines[line] for line in hub}
    host.start_watch(FROZEN_AFTER_MS, neighbours, roster.size)
    heartbeats = (
        None if alone else _core.Heartbeats(host, _descriptors(watched, roster.size), FROZEN_AFTER_MS)
    )
    executor = _core.Executor(
        host,
        0,
        roster.rank,
        list(range(roster.size)),
        local,
        _descriptors(sockets, roster.size),
        [int(rank in can_read) for rank in range(roster.size)],
    )
    roster.barrier(timeout)
    return Wires(host, executor, sockets, can_read, heartbeats, watched)


def _descriptors(sockets: dict[int, socket.socket], size: int) -> list[int]:
    return [sockets[rank].fileno() if rank in sockets else -1 for rank in range(size)]


def _tell(roster: Roster, readable: set[int], timeout: float) -> list[bytes]:
    return roster.exchange(msgspec.msgpack.encode(sorted(readable)), timeout)


def _attach(host: _core.Host, number: int, rank: int, card: _Card) -> None:
    try:
        host.attach(number, card.pid, card.descriptor)
    except (OSError, RuntimeError) as error:
        msg = f"the shared memory of rank {rank} (pid {card.pid}) cannot be used: {error}"
        raise RuntimeFailure(msg) from error


def _listen(address: str, timeout: float) -> socket.socket:
    """Listen on loopback if all ranks are here, else where WEFT_INTERFACE says or rank 0 is reached."""
    if address != _LOOPBACK:
        address = os.environ.get("WEFT_INTERFACE") or address
    family, where = resolve(address, 0, timeout, "WEFT_INTERFACE")
    try:
        return socket.create_server(where, family=family, backlog=128)
    except OSError as error:
        msg = f"WEFT_INTERFACE: {address}: {error.strerror}; give an address of this machine"
        raise InputError(msg) from error


def _connect_all(
    me: int,
    listener: socket.socket,
    cards: list[_Card],
    lines: set[int],
    token: bytes,
    timeout: float,
) -> dict[int, socket.socket]:
    """One connection for each line: the lower of two ranks listens, the higher one knocks."""
    deadline = time.monotonic() + timeout
    found: dict[int, socket.socket] = {}
    expected = set()
    try:
        for line in sorted(lines):
            purpose, rank = divmod(line, _HEARTBEAT)
            if rank < me:
                found[line] = _knock(me + purpose * _HEARTBEAT, rank, cards[rank], deadline)
            else:
                expected.add(line)
        found.update(_admit(listener, token, expected, deadline))
    except BaseException:
        for connection in found.values():
            connection.close()
        raise
    for connection in found.values():
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return found


def _code(token: bytes, line: int) -> bytes:
    return hmac.digest(token, b"weft line %d" % line, "sha256")


def _knock(line: int, rank: int, card: _Card, deadline: float) -> socket.socket:
    left = deadline - time.monotonic()
    try:
        connection = socket.create_connection((card.address, card.port), timeout=max(0.01, left))
        connection.sendall(_KNOCK.pack(line, _code(card.token, line)))
    except TimeoutError as error:
        raise TimedOut("connect", left, [rank]) from error
    except OSError as error:
        msg = f"rank {rank} cannot be reached at {card.address}:{card.port}: {error.strerror or error}"
        raise RuntimeFailure(msg) from error
    return connection


def _admit(
    listener: socket.socket, token: bytes, expected: set[int], deadline: float
) -> Iterator[tuple[int, socket.socket]]:
    """Connections for the expected lines, each once; whoever cannot prove itself is dropped."""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        pending: dict[socket.socket, bytes] = {}
        while expected:
            left = deadline - time.monotonic()
            if left <= 0:
                missing = {line % _HEARTBEAT for line in expected}
                raise TimedOut("connect", round(time.monotonic() - began, 1), missing)
            for key, _ in selector.select(left):
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    pending[connection] = b""
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                line = _hear(key.fileobj, pending, token)
                if line is None:
                    continue
                selector.unregister(key.fileobj)
                del pending[key.fileobj]
                if line in expected:
                    expected.remove(line)
                    yield line, key.fileobj
                else:
                    key.fileobj.close()
        for connection in pending:
            connection.close()


def _hear(connection: socket.socket, pending: dict[socket.socket, bytes], token: bytes) -> int | None:
    """The line that somebody knocks for, -1 for a stranger, None if it has not said all yet."""
    try:
        more = connection.recv(_KNOCK.size - len(pending[connection]))
    except BlockingIOError:
        return None
    except OSError:
        return -1
    if not more:
        return -1
    pending[connection] += more
    if len(pending[connection]) < _KNOCK.size:
        return None
    line, code = _KNOCK.unpack(pending[connection])
    return int(line) if hmac.compare_digest(code, _code(token, line)) else -1
