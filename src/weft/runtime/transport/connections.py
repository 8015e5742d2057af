"""Connections between ranks, for data and heartbeats: who listens, who calls, and what happens if one fails.

A line is one connection between two ranks, for one purpose. The lower of the two ranks listens, the higher
one calls. Both prove themselves (`weft.runtime.bootstrap.handshake`) with a token that the listener handed
out where only members of the job could read it. A rank makes all its calls at once, accepts at the same time,
and watches the control plane meanwhile: when a rank dies, or another one reports that it cannot go on, rank
0's verdict ends the wait.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, NoReturn, Self

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.dialer import (
    Dialer,
    Dismissed,
    Refused,
    RetryPauses,
)
from weft.runtime.bootstrap.handshake import (
    Gone,
    Hello,
    ProtocolError,
    hash_scope,
)
from weft.runtime.bootstrap.listener import Listener, let_idle, open_socket
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.bootstrap.server import resolve
from weft.runtime.resources import EXHAUSTED
from weft.runtime.transport.link_connections import ConnectionEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weft.runtime.bootstrap.control_plane import ControlPlane
    from weft.runtime.bootstrap.listener import Applicant
    from weft.runtime.bootstrap.name_resolution import Where


LOOPBACK: Final = "127.0.0.1"
CONNECT_S: Final = 10.0
"""Time for connecting the ranks of a job, once all have come, unless another is given."""

HEARTBEATS: Final = -1
"""Purpose of a line; 0 and more number the lanes that data goes over."""

_TOKEN_BYTES: Final = 32
_SCOPE: Final = "line"
_TICK_S: Final = 0.05
_UNREACHABLE_S: Final = 1.0
"""How long a rank that cannot be reached is tried: the verdict that it died comes sooner."""

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 6))
"""The kernel gives up a silent peer after eight seconds: after the heartbeats, or where those see nothing."""


class PeerConnection(NamedTuple):
    """One connection to another rank."""

    rank: int
    purpose: int


_Address = Annotated[str, msgspec.Meta(max_length=255)]


class ListenAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a rank listens, and what proves that somebody may come in."""

    address: _Address
    port: int
    token: bytes
    side: dict[_Address, int] = {}
    """Ports at further addresses: those of cables."""


@dataclass(frozen=True, slots=True)
class DataListener:
    """A door from inside: what listens at it."""

    door: ListenAddress
    listener: Listener

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def keep(self) -> socket.socket:
        """The socket at the main address, kept open beyond this entrance and served by nobody."""
        kept = self.listener.sockets[0].dup()
        let_idle(kept)
        return kept


def open_door(address: str, cables: Iterable[str], timeout: float) -> DataListener:
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
        listening, side = [main], {}
        for cable in cables:
            remedy = "the file gives this address to this rank; start it there, or correct the file"
            listening.append(_listen(cable, timeout, "topology", remedy))
            stack.callback(listening[-1].close)
            side[cable] = listening[-1].getsockname()[1]
        token = secrets.token_bytes(_TOKEN_BYTES)
        listener = Listener(listening, token, longest=0)
        stack.pop_all()
    at, port = main.getsockname()[:2]
    return DataListener(ListenAddress(at, port, token, side), listener)


def _listen(address: str, timeout: float, said_by: str, remedy: str) -> socket.socket:
    family, where = resolve(address, 0, timeout, said_by)
    if ip_address(where[0].partition("%")[0]).is_unspecified:
        msg = f"{said_by}: {address} is no address of its own; {remedy}"
        raise InputError(msg)
    try:
        return open_socket(family, where)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        msg = f"{said_by}: {address}: {error.strerror}; {remedy}"
        raise InputError(msg) from error


def connect_lines(
    me: int,
    entrance: DataListener,
    doors: Sequence[ListenAddress],
    lines: Mapping[PeerConnection, ConnectionEnds | None],
    timeout: float,
    watch: ControlPlane | None = None,
    check: Callable[[], None] | None = None,
) -> dict[PeerConnection, socket.socket]:
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
    timeout
        Seconds for all of them.
    watch
        The control plane, whose verdict ends the wait.
    check
        Called again and again meanwhile; what it raises ends the wait.

    Raises
    ------
    TimedOut, RuntimeFailure
        If a rank does not come or cannot be reached.
    PeerLost
        If the control plane says that a rank is lost.
    """
    calls = {}
    for line in sorted(lines):
        if line.rank < me:
            ends = lines[line] or ConnectionEnds(doors[me].address, doors[line.rank].address)
            calls[line] = _Call(me, line, doors[line.rank], ends, timeout)
    expected = {line for line in lines if line.rank > me}
    found = _Connecting(entrance, calls, expected, timeout, watch, check).run()
    for connection in found.values():
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        # The own end: one whose peer has hung up meanwhile has no other, and the first operation says so.
        if connection.getsockname()[0] == LOOPBACK:
            # Nothing is lost or jammed there; what paces packets only takes time, bbr a quarter of all.
            with suppress(OSError):  # unless this kernel does not have it
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return found


class _Call:
    """A line that this rank calls for, over one attempt or several."""

    def __init__(
        self, me: int, line: PeerConnection, door: ListenAddress, ends: ConnectionEnds, timeout: float
    ) -> None:
        self._me, self._line, self._token, self._ends = me, line, door.token, ends
        self._port = door.side.get(ends.there, door.port)
        self._pauses = RetryPauses()
        self._refused_since: float | None = None
        self.attempt: Dialer | None = None
        self.due = 0.0
        self.problem = ""
        try:
            self._where: Where = look_up(ends.there, self._port, timeout)[0]
        except OSError as error:
            msg = f"{self} cannot be reached: {error.strerror or error}"
            raise RuntimeFailure(msg) from error

    def __str__(self) -> str:
        return f"rank {self._line.rank} from {self._ends.here} at {self._ends.there}:{self._port}"

    def begin(self) -> Dialer:
        """Make an attempt."""
        self.attempt = Dialer(
            self._where,
            self._token,
            Hello.make(self._me, self._line.purpose, _SCOPE),
            b"",
            limits.MAX_UNPROVEN_BYTES,
            connect_s=self._pauses.connect_s,
            source=(self._ends.here, 0),
        )
        return self.attempt

    def put_off(self, error: Exception) -> None:
        """Note why an attempt failed and when to make the next; give up if the rank cannot be reached."""
        now = time.monotonic()
        attempt, self.attempt = self.attempt, None
        self.problem = getattr(error, "strerror", None) or str(error)
        # No answer is no refusal: the other end may have a full queue.
        answered = isinstance(error, TimeoutError) or (attempt is not None and attempt.connected)
        if answered or not isinstance(error, OSError):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > _UNREACHABLE_S:
            msg = f"{self} cannot be reached: {self.problem}"
            raise RuntimeFailure(msg) from error
        self.due = now + self._pauses.after(attempt)


class _Connecting:
    """All lines of a rank while they are connected, in one loop."""

    def __init__(
        self,
        entrance: DataListener,
        calls: dict[PeerConnection, _Call],
        expected: set[PeerConnection],
        timeout: float,
        watch: ControlPlane | None,
        check: Callable[[], None] | None,
    ) -> None:
        self._entrance, self._expected, self._watch, self._check = entrance, expected, watch, check
        self._incoming = frozenset(expected)
        self._calls = calls
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._tend_at = 0.0
        self._found: dict[PeerConnection, socket.socket] = {}

    def run(self) -> dict[PeerConnection, socket.socket]:
        """Connect them all, or none."""
        with selectors.DefaultSelector() as self._selector, ExitStack() as unless_all:
            unless_all.callback(self._close)
            self._selector.register(self._entrance.listener, selectors.EVENT_READ)
            for rank, channel in self._watch.watched.items() if self._watch else ():
                self._selector.register(channel, selectors.EVENT_READ, rank)
            while self._calls or self._expected:
                self._step()
            unless_all.pop_all()
        return self._found

    def _close(self) -> None:
        for connection in self._found.values():
            connection.close()
        for call in self._calls.values():
            if call.attempt is not None:
                call.attempt.close()

    def _step(self) -> None:
        now = time.monotonic()
        if now >= self._tend_at:
            self._tend(now)
        if not self._calls and not self._expected:
            return
        left = min(self._deadline, self._tend_at) - time.monotonic()
        for key, _ in self._selector.select(self._entrance.listener.wait_s(max(0.0, left))):
            if isinstance(key.data, PeerConnection):
                self._advance(key.data)
            elif key.fileobj is not self._entrance.listener and self._watch:
                self._watch.hear(key.data, "connect")
        for applicant in self._entrance.listener.serve():
            self._admit(applicant)
        if time.monotonic() >= self._deadline or (self._watch and self._watch.overdue):
            self._give_up()
        self._entrance.listener.check_starved()

    def _tend(self, now: float) -> None:
        """Begin the attempts that are due, and end those that have taken too long."""
        self._tend_at = now + _TICK_S
        if self._check is not None:
            self._check()
        for line, call in list(self._calls.items()):
            if call.attempt is None and now >= call.due:
                try:
                    self._selector.register(call.begin(), selectors.EVENT_WRITE, line)
                except OSError as error:
                    if error.errno in EXHAUSTED:
                        raise
                    self._put_off(call, error)
                else:
                    self._advance(line)
            elif call.attempt is not None and now >= call.attempt.deadline:
                self._put_off(call, TimeoutError("no answer"))

    def _advance(self, line: PeerConnection) -> None:
        call = self._calls.get(line)
        if call is None or call.attempt is None:
            return
        try:
            admitted = call.attempt.advance()
        except (Refused, Dismissed) as error:
            msg = f"{call} refuses the connection: {error}"
            raise RuntimeFailure(msg) from error
        except (ProtocolError, Gone, OSError) as error:
            self._put_off(call, error)
            return
        if admitted is None:
            if self._selector.get_key(call.attempt).events != call.attempt.events:
                self._selector.modify(call.attempt, call.attempt.events, line)
            return
        self._selector.unregister(call.attempt)
        self._found[line] = call.attempt.connection
        del self._calls[line]

    def _put_off(self, call: _Call, error: Exception) -> None:
        if call.attempt is not None:
            self._selector.unregister(call.attempt)
            call.attempt.close()
        call.put_off(error)

    def _admit(self, applicant: Applicant) -> None:
        """Take a connection for an incoming line; of two the later: the caller has given up the first."""
        line = PeerConnection(applicant.hello.rank, applicant.hello.number)
        if line not in self._incoming or applicant.hello.scope != hash_scope(_SCOPE):
            self._entrance.listener.turn_away(applicant, f"rank {line.rank} is not expected here now")
            return
        if line in self._found:
            self._found[line].close()
        self._found[line] = applicant.admit().connection
        self._expected.discard(line)

    def _give_up(self) -> NoReturn:
        missing = {line.rank for line in (*self._calls, *self._expected)}
        tried = [f"{call}: {call.problem}" for call in self._calls.values() if call.problem]
        hint = "; ".join((*tried[:1], *filter(None, [self._entrance.listener.describe()])))
        raise TimedOut("connect", round(time.monotonic() - self._began, 1), missing, hint or None)
