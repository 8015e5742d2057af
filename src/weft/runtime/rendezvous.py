"""How the ranks of a job find each other: rank 0 listens, the others knock, both prove themselves."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime import wire
from weft.runtime.boards import Note
from weft.runtime.environment import SECRET_BYTES
from weft.runtime.gate import Gate, Point, listen_at
from weft.runtime.names import connect
from weft.runtime.roster import Member, Roster, await_frame, check_timeout, decode, reply_bytes
from weft.runtime.wire import Channel, Gone, Hello, Kind, ProtocolError

if TYPE_CHECKING:
    from weft.runtime.environment import Place

_SHORTEST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


def join(place: Place, *, timeout: float = 60.0) -> Roster:
    """Meet the other ranks of the job; every rank calls this.

    Parameters
    ----------
    place
        Who this process is, as `weft.runtime.find_place` reads it.
    timeout
        Seconds after which the ranks that are there give up on those that are not.

    Raises
    ------
    InputError
        The place lacks a secret or a meeting point, or rank 0 refuses this process, and why.
    TimedOut, PeerLost
        Ranks that did not come, or went away meanwhile.
    """
    check_timeout(timeout)
    me = Member.here(place.rank)
    if place.size == 1:
        return Roster(0, (me,), {})
    if place.rank == 0:
        return _open_gate(place, me, timeout)
    return _knock_until_open(place, me, timeout)


def _open_gate(place: Place, me: Member, timeout: float) -> Roster:
    """Rank 0: listen, let the others know where if nobody else does, and admit them."""
    board = place.board
    point = _meeting_point(place, Note(place.port or 0, token_bytes(SECRET_BYTES)) if board else None)
    with ExitStack() as at_the_end:
        listener = at_the_end.enter_context(listen_at(point, timeout))
        point = replace(point, port=listener.getsockname()[1])
        if board is not None:
            at_the_end.callback(board.remove)
            try:
                board.leave(Note(point.port, point.secret, point.address), timeout)
            except OSError as error:
                msg = f"the job's secret cannot be left at {board}: {error}; set WEFT_SECRET and WEFT_PORT"
                raise RuntimeFailure(msg) from error
        gate = at_the_end.enter_context(Gate(place, point, listener, timeout))
        return gate.admit_all(me)


def _meeting_point(place: Place, note: Note | None) -> Point:
    """Where to meet: as the environment says, or the note that rank 0 leaves."""
    if note is not None:
        place = replace(place, port=note.port, secret=note.secret, address=place.address or note.address)
    if place.secret is None:
        made = "" if place.launcher == "none" else f"{place.launcher} makes none; "
        msg = f"this job has no secret: {made}give every rank the same WEFT_SECRET or WEFT_SECRET_FILE"
        raise InputError(f"{msg}, 64 hexadecimal digits as 'openssl rand -hex 32' prints them")
    named = {"WEFT_ADDRESS": place.address, "WEFT_PORT": place.port}
    if unknown := [name for name, value in named.items() if value is None]:
        what = {"WEFT_ADDRESS": "a host name or address of rank 0", "WEFT_PORT": "a free port there"}
        msg = f"nobody says where rank 0 listens; set {' and '.join(f'{n} ({what[n]})' for n in unknown)}"
        raise InputError(msg)
    assert place.address is not None
    assert place.port is not None
    return Point(place.address, place.port, place.secret)


def _find_point(place: Place, left: float) -> Point:
    """Where rank 0 is now; read anew each time, because a note may have been left by an earlier job."""
    if place.board is None:
        return _meeting_point(place, None)
    note = place.board.read(left)
    if note is None:
        msg = f"rank 0 has left no note at {place.board}"
        raise ProtocolError(msg)
    return _meeting_point(place, note)


def _knock_until_open(place: Place, me: Member, timeout: float) -> Roster:
    """Try again until rank 0 listens and admits this process."""
    deadline = time.monotonic() + timeout
    pause = _SHORTEST_PAUSE_S
    problem = "no answer"
    where = ""
    while (left := deadline - time.monotonic()) > 0:
        try:
            point = _find_point(place, left)
            where = f" tried {point}"
            channel = _knock(place, point, me, deadline - time.monotonic())
        except (ProtocolError, Gone) as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            return _enter(channel, place, deadline, timeout)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    raise TimedOut("join", timeout, [0], f"rank {place.rank}{where}: {problem}")


def _knock(place: Place, point: Point, me: Member, left: float) -> Channel:
    """Prove this process to rank 0, and have rank 0 prove itself."""
    give_up = time.monotonic() + min(left, limits.MAX_UNPROVEN_SECONDS)
    connection = connect(point.address, point.port, max(0.001, give_up - time.monotonic()))
    with ExitStack() as unless_admitted:
        unless_admitted.callback(connection.close)
        if connection.getsockname() == connection.getpeername():
            msg = "nobody listens there"  # the kernel connected the socket with itself
            raise ProtocolError(msg)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = Hello.of(place)
        connection.sendall(hello.encode())
        challenge = _read_exactly(connection, wire.CHALLENGE_BYTES, give_up)
        transcript = wire.read_challenge(point.secret, hello, challenge)
        connection.sendall(transcript.answer(msgspec.msgpack.encode(me)))
        to_rank_0, from_rank_0 = transcript.keys()
        channel = Channel(connection, to_rank_0, from_rank_0, reply_bytes(place.size))
        kind, reason = _first_frame(channel, give_up)
        if kind is Kind.REFUSED:
            msg = f"rank 0 at {point} refuses this process: {reason.decode('utf-8', 'replace')}"
            raise InputError(msg)
        if kind is not Kind.ADMITTED:
            msg = f"rank 0 answers with {kind.name.lower()}"
            raise ProtocolError(msg)
        unless_admitted.pop_all()
    return channel


def _read_exactly(connection: socket.socket, count: int, give_up: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(0.001, give_up - time.monotonic()))
        if not (more := connection.recv(count - len(data))):
            msg = "whoever listens there hangs up: the secret may differ, or it is something else"
            raise ProtocolError(msg)
        data += more
    return data


def _first_frame(channel: Channel, give_up: float) -> tuple[Kind, bytes]:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while (left := give_up - time.monotonic()) > 0:
            if selector.select(left) and (frame := channel.receive()) is not None:
                return frame
    msg = "rank 0 does not answer"
    raise ProtocolError(msg)


def _enter(channel: Channel, place: Place, deadline: float, timeout: float) -> Roster:
    """Wait, once admitted, until everybody is there."""
    with ExitStack() as unless_complete:
        unless_complete.callback(channel.close)
        left = max(0.001, deadline - time.monotonic())
        try:
            kind, record = await_frame(channel, "join", left, None)
        except TimedOut as error:
            raise TimedOut("join", timeout, error.missing, error.hint) from error
        members = decode(record, tuple[Member, ...], "rank 0") if kind is Kind.WELCOME else ()
        if [member.rank for member in members] != list(range(place.size)):
            msg = "rank 0 sent a roster that is not that of the job; use one Weft everywhere"
            raise RuntimeFailure(msg)
        unless_complete.pop_all()
    return Roster(place.rank, members, {0: channel})
