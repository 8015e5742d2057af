"""Connections between ranks: who listens, who knocks, and how each proves who it is.

A line is one connection between two ranks, for one purpose. The lower of the two ranks listens, the higher
one knocks, with a code from the token that the listener handed out where only members of the job could read
it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, Self

import msgspec

from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.gate import resolve
from weft.runtime.lanes import Ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType


LOOPBACK: Final = "127.0.0.1"
HEARTBEATS: Final = -1
"""Purpose of a line; 0 and more number the lanes that data goes over."""

_TOKEN_BYTES: Final = 32
_KNOCK: Final = struct.Struct("!Ii32s")
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 6))
"""The kernel gives up a silent peer after eight seconds: after the heartbeats, or where those see nothing."""


class Line(NamedTuple):
    """One connection to another rank."""

    rank: int
    purpose: int


_Address = Annotated[str, msgspec.Meta(max_length=255)]


class Door(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a rank listens, and what proves that somebody may come in."""

    address: _Address
    port: int
    token: bytes
    side: dict[_Address, int] = {}
    """Ports at further addresses: those of cables."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """A door from inside: what listens at it."""

    door: Door
    listeners: tuple[socket.socket, ...]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for listener in self.listeners:
            listener.close()


def open_door(address: str, cables: Iterable[str], timeout: float) -> Entrance:
    """Listen on loopback if all ranks are here, else where WEFT_INTERFACE says or rank 0 is reached.

    Parameters
    ----------
    address
        Where rank 0 is reached from.
    cables
        Further addresses that a topology gives to this rank.
    timeout
        Seconds for resolving names.
    """
    if address != LOOPBACK:
        address = os.environ.get("WEFT_INTERFACE") or address
    with ExitStack() as stack:
        main = _listen(address, timeout, "WEFT_INTERFACE", "give an address of this machine")
        stack.callback(main.close)
        listeners, side = [main], {}
        for cable in cables:
            remedy = "the file gives this address to this rank; start it there, or correct the file"
            listener = _listen(cable, timeout, "topology", remedy)
            stack.callback(listener.close)
            listeners.append(listener)
            side[cable] = listener.getsockname()[1]
        stack.pop_all()
    at, port = main.getsockname()[:2]
    return Entrance(Door(at, port, secrets.token_bytes(_TOKEN_BYTES), side), tuple(listeners))


def _listen(address: str, timeout: float, said_by: str, remedy: str) -> socket.socket:
    family, where = resolve(address, 0, timeout, said_by)
    if ip_address(where[0].partition("%")[0]).is_unspecified:
        msg = f"{said_by}: {address} is no address of its own; {remedy}"
        raise InputError(msg)
    try:
        return socket.create_server(where, family=family, backlog=128)
    except OSError as error:
        msg = f"{said_by}: {address}: {error.strerror}; {remedy}"
        raise InputError(msg) from error


def connect_lines(
    me: int,
    entrance: Entrance,
    doors: Sequence[Door],
    lines: Mapping[Line, Ends | None],
    timeout: float,
) -> dict[Line, socket.socket]:
    """Connect every line.

    Parameters
    ----------
    me
        This rank.
    entrance
        This rank's door.
    doors
        Of all ranks, this one's included.
    lines
        Those that this rank has a part in; each names the rank at its other end. With the addresses that it
        has to join, if that is prescribed.
    """
    deadline = time.monotonic() + timeout
    found: dict[Line, socket.socket] = {}
    try:
        for line in sorted(lines):
            if line.rank < me:
                ends = lines[line] or Ends(doors[me].address, doors[line.rank].address)
                found[line] = _knock(Line(me, line.purpose), line.rank, doors[line.rank], ends, deadline)
        expected = lines.keys() - found.keys()
        found.update(_admit(entrance, expected, deadline))
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
        if connection.getpeername()[0] == LOOPBACK:
            # Nothing is lost or jammed there; what paces packets only takes time, bbr a quarter of all.
            with suppress(OSError):  # unless this kernel does not have it
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return found


def _code(token: bytes, line: Line) -> bytes:
    return hmac.digest(token, b"weft line %d %d" % line, "sha256")


def _knock(line: Line, rank: int, door: Door, ends: Ends, deadline: float) -> socket.socket:
    left = deadline - time.monotonic()
    target = ends.there, door.side.get(ends.there, door.port)
    try:
        connection = socket.create_connection(target, timeout=max(0.01, left), source_address=(ends.here, 0))
        connection.sendall(_KNOCK.pack(*line, _code(door.token, line)))
    except TimeoutError as error:
        raise TimedOut("connect", round(left, 1), [rank]) from error
    except OSError as error:
        where = f"from {ends.here} at {target[0]}:{target[1]}"
        msg = f"rank {rank} cannot be reached {where}: {error.strerror or error}"
        raise RuntimeFailure(msg) from error
    return connection


def _admit(entrance: Entrance, expected: set[Line], deadline: float) -> Iterator[tuple[Line, socket.socket]]:
    """Connections for the expected lines, each once; whoever cannot prove itself is dropped."""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for listener in entrance.listeners:
            selector.register(listener, selectors.EVENT_READ)
        pending: dict[socket.socket, bytes] = {}
        while expected:
            left = deadline - time.monotonic()
            if left <= 0:
                missing = {line.rank for line in expected}
                raise TimedOut("connect", round(time.monotonic() - began, 1), missing)
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj in entrance.listeners:
                    connection, _ = key.fileobj.accept()
                    connection.setblocking(False)
                    pending[connection] = b""
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                line = _hear(key.fileobj, pending, entrance.door.token)
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


_STRANGER: Final = Line(-1, 0)


def _hear(connection: socket.socket, pending: dict[socket.socket, bytes], token: bytes) -> Line | None:
    """The line that somebody knocks for, None if it has not said all yet."""
    try:
        more = connection.recv(_KNOCK.size - len(pending[connection]))
    except BlockingIOError:
        return None
    except OSError:
        return _STRANGER
    if not more:
        return _STRANGER
    pending[connection] += more
    if len(pending[connection]) < _KNOCK.size:
        return None
    rank, purpose, code = _KNOCK.unpack(pending[connection])
    line = Line(rank, purpose)
    return line if hmac.compare_digest(code, _code(token, line)) else _STRANGER
