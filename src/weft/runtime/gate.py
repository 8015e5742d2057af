"""Rank 0 while the others come: who may enter, and what strangers may cost.

Whoever does not know the job's secret costs rank 0 a bounded number of bytes, seconds and open files, and
cannot keep the job from starting: strangers are served side by side, and when there are too many, those that
have waited longest go first.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, Self

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut, name_ranks
from weft.runtime import wire
from weft.runtime.names import look_up
from weft.runtime.roster import Member, Roster, announce, decode, lost, send_all
from weft.runtime.wire import Channel, Gone, Hello, Kind, ProtocolError, Transcript

if TYPE_CHECKING:
    from collections.abc import Generator

    from weft.runtime.environment import Place
    from weft.runtime.names import Where

_BACKLOG: Final = 1024
_CROWDED_S: Final = 0.5
"""What a stranger gets when others wait for its place."""

_PORT_TAKEN_S: Final = 2.0
_PORT_PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class Point:
    """Where to meet, and what to know there."""

    address: str
    port: int
    secret: bytes

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def reserve_port(address: str) -> tuple[socket.socket, int]:
    """Take a free port for a rank 0 that starts later; nobody else gets it while the socket is open."""
    family, where = resolve(address, 0, limits.MAX_UNPROVEN_SECONDS)
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Bound but not listening, with this option on both: rank 0 can still bind it, and listen.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(where)
    except BaseException:
        holder.close()
        raise
    return holder, holder.getsockname()[1]


def resolve(address: str, port: int, timeout: float, variable: str = "WEFT_ADDRESS") -> Where:
    """Family and socket address of where to listen."""
    try:
        return look_up(address, port, timeout, listens=True)[0]
    except TimeoutError as error:
        raise TimedOut("join", timeout, hint=f"{variable}: {error}") from error
    except OSError as error:
        msg = f"{variable}: {address}: {error.strerror or error}; give a host name or address of this machine"
        raise InputError(msg) from error


def listen_at(point: Point, timeout: float) -> socket.socket:
    """Listen at exactly the given address: loopback stays loopback."""
    family, where = resolve(point.address, point.port, timeout)
    patience = time.monotonic() + min(timeout, _PORT_TAKEN_S)
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                msg = f"{point.address} is no address of this machine; WEFT_ADDRESS must be one of rank 0's"
                raise InputError(msg) from error
            # A knocking rank may hold the port for an instant, where it lies among those for outgoing calls.
            if error.errno != errno.EADDRINUSE or time.monotonic() > patience:
                msg = f"rank 0 cannot listen at {point}: {error.strerror}; set WEFT_PORT to a free port"
                raise RuntimeFailure(msg) from error
            time.sleep(_PORT_PAUSE_S)
        else:
            return listener


@dataclass(frozen=True)
class _Applicant:
    """A peer that knows the secret."""

    hello: Hello
    transcript: Transcript
    record: bytes


def _interview(secret: bytes) -> Generator[tuple[bytes, int], bytes, _Applicant]:
    """Rank 0's side of the proof: yields what to send and how many bytes to read, and is sent these."""
    hello = Hello.decode((yield b"", wire.HELLO_BYTES))
    transcript = Transcript(secret, hello, token_bytes(wire.NONCE_BYTES))
    head = yield transcript.challenge(), wire.ANSWER_BYTES
    length = wire.record_length(head)
    record = (yield b"", length) if length else b""
    transcript.check_answer(head, record)
    return _Applicant(hello, transcript, record)


class _Stranger:
    """A connection that has not proven anything yet."""

    def __init__(self, connection: socket.socket, secret: bytes) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.since = time.monotonic()
        self._interview = _interview(secret)
        _, self._needed = next(self._interview)
        self._heard = b""

    def fileno(self) -> int:
        return self.connection.fileno()

    def listen(self) -> _Applicant | None:
        """Read what is there, never more than the next answer; the applicant once it has proven itself."""
        while True:
            try:
                data = self.connection.recv(self._needed - len(self._heard))
            except (BlockingIOError, InterruptedError):
                return None
            if not data:
                msg = "it left before it had proven itself"
                raise ProtocolError(msg)
            self._heard += data
            if len(self._heard) < self._needed:
                continue
            heard, self._heard = self._heard, b""
            try:
                to_send, self._needed = self._interview.send(heard)
            except StopIteration as done:
                applicant: _Applicant = done.value
                return applicant
            # So few bytes always fit into the buffer of a new connection.
            if to_send and self.connection.send(to_send) != len(to_send):
                msg = "it does not read"
                raise ProtocolError(msg)


class Gate:
    """Rank 0 while the others come; everything it opened is closed again unless all of them came."""

    def __init__(self, place: Place, point: Point, listener: socket.socket, timeout: float) -> None:
        self._place = place
        self._point = point
        self._listener = listener
        self._timeout = timeout
        self._started = time.monotonic()
        self._deadline = self._started + timeout
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[_Stranger, None] = {}  # in the order of their coming
        self._channels: dict[int, Channel] = {}
        self._members: dict[int, Member] = {}
        self._turned_away = 0
        self._last_reason = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for channel in self._channels.values():
                channel.close()
        for stranger in self._strangers:
            stranger.connection.close()
        self._selector.close()

    def admit_all(self, me: Member) -> Roster:
        """Wait for every rank, then tell each of them who is there."""
        self._members[0] = me
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while len(self._members) < self._place.size:
                self._admit_some()
            members = tuple(self._members[rank] for rank in range(self._place.size))
            record = msgspec.msgpack.encode(members)
            send_all(self._channels, members, Kind.WELCOME, record, self._deadline)
        except RuntimeFailure as error:
            announce(self._channels.values(), error, "join")
            raise
        return Roster(0, members, self._channels)

    def _admit_some(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            missing = set(range(self._place.size)) - self._members.keys()
            raise TimedOut("join", self._waited(now), missing, self._hint())
        for key, _ in self._selector.select(self._next_alarm(now) - now):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, _Stranger):
                self._hear(key.fileobj)
            else:
                self._hear_member(key.data)
        self._expire(time.monotonic())

    def _next_alarm(self, now: float) -> float:
        """When to look again though nothing happens; also whether anybody new may come now."""
        full = len(self._strangers) >= limits.MAX_PENDING_PEERS
        listening = self._listener in self._selector.get_map()
        if full and listening:
            self._selector.unregister(self._listener)
        elif not full and not listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        if not self._strangers:
            return self._deadline
        patience = _CROWDED_S if full else limits.MAX_UNPROVEN_SECONDS
        oldest = next(iter(self._strangers)).since
        return max(now, min(self._deadline, oldest + patience))

    def _expire(self, now: float) -> None:
        full = len(self._strangers) >= limits.MAX_PENDING_PEERS
        patience = _CROWDED_S if full else limits.MAX_UNPROVEN_SECONDS
        for stranger in list(self._strangers):
            if now - stranger.since < patience:
                break
            self._turn_away(stranger, "it was too slow")

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            msg = f"rank 0 cannot take another connection: {error.strerror}; 'ulimit -n' may be too low"
            raise RuntimeFailure(msg) from error
        stranger = _Stranger(connection, self._point.secret)
        self._strangers[stranger] = None
        self._selector.register(stranger, selectors.EVENT_READ)

    def _hear(self, stranger: _Stranger) -> None:
        try:
            applicant = stranger.listen()
        except ProtocolError as error:
            self._turn_away(stranger, str(error))
        except OSError as error:
            self._turn_away(stranger, error.strerror or str(error))
        else:
            if applicant is not None:
                self._decide(stranger, applicant)

    def _decide(self, stranger: _Stranger, applicant: _Applicant) -> None:
        """Take or refuse a peer that knows the secret; it is told why."""
        self._selector.unregister(stranger)
        del self._strangers[stranger]
        from_peer, to_peer = applicant.transcript.keys()
        stranger.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(stranger.connection, to_peer, from_peer, limits.MAX_EXCHANGE_BYTES)
        rank = applicant.hello.rank
        reason = self._objection(applicant.hello)
        member = None
        if reason is None:
            try:
                member = decode(applicant.record, Member, f"rank {rank}")
            except RuntimeFailure as error:
                reason = str(error)
        if member is None or member.rank != rank:
            self._refuse(channel, reason or f"its record is that of rank {member.rank if member else '?'}")
            return
        self._members[rank] = member
        self._channels[rank] = channel
        channel.queue(Kind.ADMITTED, b"")
        with suppress(Gone):  # seen when it is read from
            channel.flush()
        self._selector.register(channel, selectors.EVENT_READ, rank)

    def _objection(self, hello: Hello) -> str | None:
        if hello.job_hash != wire.hash_job(self._place.job):
            return "it belongs to another job: WEFT_JOB differs"
        if hello.size != self._place.size:
            return f"it counts {hello.size} ranks, rank 0 counts {self._place.size}"
        if not 0 < hello.rank < self._place.size:
            return f"there is no place for a rank {hello.rank}"
        if hello.rank in self._members:
            there = self._members[hello.rank]
            return f"rank {hello.rank} is there already: host {there.host}, pid {there.pid}"
        return None

    def _refuse(self, channel: Channel, reason: str) -> None:
        self._turned_away += 1
        self._last_reason = reason
        channel.queue(Kind.REFUSED, reason[:600].encode())
        with suppress(Gone):
            channel.flush()
        channel.close()

    def _turn_away(self, stranger: _Stranger, reason: str) -> None:
        self._turned_away += 1
        self._last_reason = reason
        self._selector.unregister(stranger)
        del self._strangers[stranger]
        stranger.connection.close()

    def _hear_member(self, rank: int) -> None:
        """A rank that was admitted can only say, before everybody is there, that its time is over."""
        try:
            frame = self._channels[rank].receive()
        except Gone as error:
            raise lost(self._members[rank], "join") from error
        if frame is not None and frame[0] is Kind.EXPIRED:
            self._deadline = time.monotonic()
        elif frame is not None:
            msg = f"rank {rank} spoke before the job was complete; use one Weft everywhere"
            raise RuntimeFailure(msg)

    def _waited(self, now: float) -> float:
        """Seconds since the start, less than the timeout if another rank had less patience."""
        return min(self._timeout, round(now - self._started, 1))

    def _hint(self) -> str | None:
        if not self._turned_away:
            return f"{name_ranks(self._members)} waited at {self._point}"
        count = self._turned_away
        return f"{count} connection{'s' * (count > 1)} turned away, the last because {self._last_reason}"
