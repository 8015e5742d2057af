"""Data and heartbeat connections between ranks: open the listener, dial, accept, and retry.

A connection joins two ranks for one purpose. The lower of the two ranks listens, the higher one dials. Both
prove themselves (`weft.runtime.bootstrap.handshake`) with a token that the listener handed out where only
members of the job could read it. A rank dials all its connections at once, accepts at the same time, and
watches the control plane meanwhile: when a rank dies, or another one reports that it cannot go on, rank 0's
verdict ends the wait.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import time
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, NoReturn

import msgspec

from weft import limits, units
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.dialer import Dialer, Refused, RetryPauses
from weft.runtime.bootstrap.handshake import Gone, Hello, ProtocolError, hash_scope
from weft.runtime.bootstrap.listener import Listener, let_idle, open_socket
from weft.runtime.bootstrap.meeting_point import resolve
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.resources import EXHAUSTED, close_on_error
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
"""Purpose of a connection; 0 and more number the connections that data goes over."""

_TOKEN_BYTES: Final = 32
_TCP_NOTSENT_LOWAT: Final = 25
"""Of Linux; Python 3.11 has no name for it."""

_UNSENT_BYTES: Final = 128 << 10
_LEAST_UNSENT: Final = 4 << 10
_MOST_UNSENT: Final = 64 << 20
_SCOPE: Final = "data"
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
    """Where a rank listens, and the token that proves that a peer may connect."""

    address: _Address
    port: int
    token: bytes
    link_ports: dict[_Address, int] = {}
    """Ports at the addresses that a topology gives to this rank."""


class DataListener(Listener):
    """The listener of a rank for connections from its peers, and its address."""

    def __init__(self, sockets: Iterable[socket.socket], listens_at: ListenAddress) -> None:
        super().__init__(sockets, listens_at.token, longest=0)
        self.listens_at = listens_at

    def keep(self) -> socket.socket:
        """The socket at the main address, kept open after the listener is closed; nothing serves it."""
        kept = self.sockets[0].dup()
        let_idle(kept)
        return kept


def open_data_listener(address: str, link_addresses: Iterable[str], timeout: float) -> DataListener:
    """Listen for peers: on loopback if all ranks are here, else at WEFT_INTERFACE or at the given address.

    Parameters
    ----------
    address
        The address of this rank from which it reaches rank 0.
    link_addresses
        Further addresses that a topology gives to this rank.
    timeout
        Seconds for resolving names.
    """
    if address != LOOPBACK:
        address = os.environ.get("WEFT_INTERFACE") or address
    with ExitStack() as stack:
        main = _listen(address, timeout, "WEFT_INTERFACE", "give an address of this machine")
        stack.callback(main.close)
        listening, link_ports = [main], {}
        for link_address in link_addresses:
            remedy = "the file gives this address to this rank; start it there, or correct the file"
            listening.append(_listen(link_address, timeout, "topology", remedy))
            stack.callback(listening[-1].close)
            link_ports[link_address] = listening[-1].getsockname()[1]
        at, port = main.getsockname()[:2]
        listens_at = ListenAddress(at, port, secrets.token_bytes(_TOKEN_BYTES), link_ports)
        listener = DataListener(listening, listens_at)
        stack.pop_all()
    return listener


def _listen(address: str, timeout: float, said_by: str, remedy: str) -> socket.socket:
    family, where = resolve(address, 0, timeout, said_by)
    if ip_address(where[0].partition("%")[0]).is_unspecified:
        raise InputError(f"{said_by}: {address} is no address of its own; {remedy}")
    try:
        return open_socket(family, where)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        raise InputError(f"{said_by}: {address}: {error.strerror}; {remedy}") from error


def find_unsent_bytes() -> int:
    """Return how many bytes may wait in a socket to another machine: what ``WEFT_UNSENT`` says, else 128 KiB.

    What waits there has its turn before anything more urgent that becomes ready meanwhile. A fast network
    sends 128 KiB in no time; a slow one is better off with less.

    Raises
    ------
    InputError
        If the variable is no size of at least 4 KiB.
    """
    said = os.environ.get("WEFT_UNSENT")
    if said is None:
        return _UNSENT_BYTES
    try:
        size = units.parse_size(said)
    except InputError as error:
        raise InputError(f"WEFT_UNSENT: {error}") from error
    if not _LEAST_UNSENT <= size <= _MOST_UNSENT:
        expected = f"{_LEAST_UNSENT >> 10}KiB to {_MOST_UNSENT >> 20}MiB"
        raise InputError(f"WEFT_UNSENT: {said[:40]!r}: expected {expected}")
    return size


def connect_peers(
    rank: int,
    listener: DataListener,
    addresses: Sequence[ListenAddress],
    wanted: Mapping[PeerConnection, ConnectionEnds | None],
    timeout: float,
    control_plane: ControlPlane | None = None,
    check: Callable[[], None] | None = None,
) -> dict[PeerConnection, socket.socket]:
    """Make all connections of this rank to its peers.

    Parameters
    ----------
    rank
        This rank.
    listener
        Where this rank listens.
    addresses
        Where each rank listens, this one included.
    wanted
        The connections of this rank; each names the rank at its other end. With the addresses that it has to
        join, if the topology prescribes them.
    timeout
        Seconds for all of them.
    control_plane
        Says meanwhile which rank is lost.
    check
        Raises if a rank is lost meanwhile; called some times a second.

    Raises
    ------
    TimedOut, RuntimeFailure
        If a rank does not come or cannot be reached.
    PeerLost
        If the control plane says that a rank is lost.
    """
    calls = {}
    for peer in sorted(wanted):
        if peer.rank < rank:
            there = addresses[peer.rank]
            ends = wanted[peer] or ConnectionEnds(addresses[rank].address, there.address)
            calls[peer] = _OutgoingConnection(rank, peer, there, ends, timeout)
    expected = {peer for peer in wanted if peer.rank > rank}
    unsent = find_unsent_bytes()
    found = _Connecting(listener, calls, expected, timeout, control_plane, check).run()
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
        else:
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, unsent)
    return found


class _OutgoingConnection:
    """A connection that this rank dials, over one attempt or several."""

    def __init__(
        self, rank: int, peer: PeerConnection, there: ListenAddress, ends: ConnectionEnds, timeout: float
    ) -> None:
        self._rank, self._peer, self._token, self._ends = rank, peer, there.token, ends
        self._port = there.link_ports.get(ends.there, there.port)
        self._pauses = RetryPauses()
        self._refused_since: float | None = None
        self.attempt: Dialer | None = None
        self.due = 0.0
        self.problem = ""
        try:
            self._where: Where = look_up(ends.there, self._port, timeout)[0]
        except OSError as error:
            raise RuntimeFailure(f"{self} cannot be reached: {error.strerror or error}") from error

    def __str__(self) -> str:
        return f"rank {self._peer.rank} from {self._ends.here} at {self._ends.there}:{self._port}"

    def begin(self) -> Dialer:
        """Begin an attempt to connect."""
        self.attempt = Dialer(
            self._where,
            self._token,
            Hello.make(self._rank, self._peer.purpose, _SCOPE),
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
            raise RuntimeFailure(f"{self} cannot be reached: {self.problem}") from error
        self.due = now + self._pauses.after(attempt)


class _Connecting:
    """Makes all connections of a rank in one loop: dials, accepts, and watches the control plane."""

    def __init__(
        self,
        listener: Listener,
        calls: dict[PeerConnection, _OutgoingConnection],
        expected: set[PeerConnection],
        timeout: float,
        control_plane: ControlPlane | None,
        check: Callable[[], None] | None,
    ) -> None:
        self._listener, self._expected, self._check = listener, expected, check
        self._control_plane = control_plane
        self._incoming = frozenset(expected)
        self._calls = calls
        self._began = time.monotonic()
        self._deadline = self._began + timeout
        self._tend_at = 0.0
        self._found: dict[PeerConnection, socket.socket] = {}

    def run(self) -> dict[PeerConnection, socket.socket]:
        """Connect them all, or none."""
        with selectors.DefaultSelector() as self._selector, close_on_error(self):
            self._selector.register(self._listener, selectors.EVENT_READ)
            for rank, channel in self._control_plane.watched.items() if self._control_plane else ():
                self._selector.register(channel, selectors.EVENT_READ, rank)
            while self._calls or self._expected:
                self._step()
        return self._found

    def close(self) -> None:
        """Close what was connected so far, and give up what was begun."""
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
        for key, _ in self._selector.select(self._listener.wait_s(max(0.0, left))):
            if isinstance(key.data, PeerConnection):
                self._advance(key.data)
            elif key.fileobj is not self._listener and self._control_plane:
                self._control_plane.hear(key.data, "connect")
        for applicant in self._listener.serve():
            self._admit(applicant)
        if time.monotonic() >= self._deadline or (self._control_plane and self._control_plane.overdue):
            self._give_up()
        self._listener.check_starved()

    def _tend(self, now: float) -> None:
        """Begin the attempts that are due, and end those that have taken too long."""
        self._tend_at = now + _TICK_S
        if self._check is not None:
            self._check()
        for peer, call in list(self._calls.items()):
            if call.attempt is None and now >= call.due:
                try:
                    self._selector.register(call.begin(), selectors.EVENT_WRITE, peer)
                except OSError as error:
                    if error.errno in EXHAUSTED:
                        raise
                    self._put_off(call, error)
                else:
                    self._advance(peer)
            elif call.attempt is not None and now >= call.attempt.deadline:
                self._put_off(call, TimeoutError("no answer"))

    def _advance(self, peer: PeerConnection) -> None:
        call = self._calls.get(peer)
        if call is None or call.attempt is None:
            return
        try:
            admitted = call.attempt.advance()
        except (Refused, RuntimeFailure) as error:
            raise RuntimeFailure(f"{call} refuses the connection: {error}") from error
        except (ProtocolError, Gone, OSError) as error:
            self._put_off(call, error)
            return
        if admitted is None:
            if self._selector.get_key(call.attempt).events != call.attempt.events:
                self._selector.modify(call.attempt, call.attempt.events, peer)
            return
        self._selector.unregister(call.attempt)
        self._found[peer] = call.attempt.connection
        del self._calls[peer]

    def _put_off(self, call: _OutgoingConnection, error: Exception) -> None:
        if call.attempt is not None:
            self._selector.unregister(call.attempt)
            call.attempt.close()
        call.put_off(error)

    def _admit(self, applicant: Applicant) -> None:
        """Accept an expected connection; of two the later one, because the dialer has given up the first."""
        peer = PeerConnection(applicant.hello.rank, applicant.hello.number)
        if peer not in self._incoming or applicant.hello.scope != hash_scope(_SCOPE):
            self._listener.turn_away(applicant, f"rank {peer.rank} is not expected here now")
            return
        if peer in self._found:
            self._found[peer].close()
        self._found[peer] = applicant.admit().connection
        self._expected.discard(peer)

    def _give_up(self) -> NoReturn:
        missing = {peer.rank for peer in (*self._calls, *self._expected)}
        tried = [f"{call}: {call.problem}" for call in self._calls.values() if call.problem]
        hint = "; ".join((*tried[:1], *filter(None, [self._listener.describe()])))
        raise TimedOut("connect", round(time.monotonic() - self._began, 1), missing, hint or None)
