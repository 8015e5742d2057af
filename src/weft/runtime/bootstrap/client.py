"""Join a job: rank 0 listens, the other ranks dial it, and both sides prove that they belong to the job."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from secrets import token_bytes
from typing import TYPE_CHECKING

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.control_plane import (
    ControlPlane,
    await_frame,
    check_reply,
    check_timeout,
    reply_bytes,
)
from weft.runtime.bootstrap.dialer import Dialer, Refused, RetryPauses
from weft.runtime.bootstrap.environment import SECRET_BYTES
from weft.runtime.bootstrap.handshake import FrameKind, Gone, Hello, ProtocolError
from weft.runtime.bootstrap.listener import Listener
from weft.runtime.bootstrap.meeting_point import choose_meeting_point, find_meeting_point, listen_at
from weft.runtime.bootstrap.members import Member, decode
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.bootstrap.secret_note import SecretNote
from weft.runtime.bootstrap.server import BootstrapServer
from weft.runtime.extension import require_runtime
from weft.runtime.launcher.failure_reports import FailureReporter
from weft.runtime.resources import EXHAUSTED, close_on_error, guarded

if TYPE_CHECKING:
    from weft.runtime.bootstrap.environment import Place
    from weft.runtime.bootstrap.handshake import FramedConnection


def join(place: Place, *, timeout: float) -> ControlPlane:
    """Join the job and get its control plane; every rank calls this.

    Parameters
    ----------
    place
        The place of this process in the job, as `weft.runtime.find_place` reads it.
    timeout
        Seconds after which the ranks that are there give up on those that are not.

    Raises
    ------
    InputError
        The place lacks a secret or a meeting point, rank 0 refuses this process, and why, or `weft._runtime`
        is not there.
    TimedOut, PeerLost
        Ranks that did not come, or went away meanwhile.
    """
    require_runtime()
    check_timeout(timeout)
    reporter = FailureReporter.open(place.report, place.rank)
    try:
        with guarded(f"joining the job as rank {place.rank}"):
            control_plane = _meet(place, timeout)
    except RuntimeFailure as failure:
        reporter.tell(failure)
        raise
    reporter.tell_joined()
    control_plane.reporter = reporter
    return control_plane


def _meet(place: Place, timeout: float) -> ControlPlane:
    me = Member.here(place.rank)
    if place.size == 1:
        return ControlPlane(0, (me,), {})
    if place.rank == 0:
        return _serve_as_rank_0(place, me, timeout)
    return _dial_rank_0(place, me, timeout)


def _serve_as_rank_0(place: Place, me: Member, timeout: float) -> ControlPlane:
    """Rank 0: listen, leave the secret where the others find it if nobody else has one, and admit them."""
    exchange = place.secret_exchange
    point = choose_meeting_point(
        place, SecretNote(place.port or 0, token_bytes(SECRET_BYTES)) if exchange else None
    )
    with ExitStack() as at_the_end:
        listening = at_the_end.enter_context(listen_at(point, timeout))
        point = replace(point, port=listening.getsockname()[1])
        listener = Listener([listening], point.secret, limits.MAX_EXCHANGE_BYTES)
        at_the_end.enter_context(listener)
        if exchange is not None:
            at_the_end.callback(exchange.remove)
            try:
                exchange.leave(SecretNote(point.port, point.secret, point.address), timeout)
            except OSError as error:
                msg = f"the job's secret cannot be left at {exchange}: {error}; set WEFT_SECRET and WEFT_PORT"
                raise RuntimeFailure(msg) from error
        server = at_the_end.enter_context(BootstrapServer(place, point, listener, timeout))
        return server.admit_all(me)


def _dial_rank_0(place: Place, me: Member, timeout: float) -> ControlPlane:
    """Try again until rank 0 listens and admits this process."""
    deadline = time.monotonic() + timeout
    record, longest = msgspec.msgpack.encode(me), reply_bytes(place.size)
    pauses = RetryPauses()
    problem, tried = "no answer", ""
    for attempt in count():
        left = deadline - time.monotonic()
        if left <= 0:
            break
        caller = None
        try:
            point = find_meeting_point(place, left)
            tried = f" tried {point}"
            addresses = look_up(point.address, point.port, max(0.001, deadline - time.monotonic()))
            where, hello = addresses[attempt % len(addresses)], Hello.of(place)
            caller = Dialer(where, point.secret, hello, record, longest, connect_s=pauses.connect_s)
            channel, payload = caller.wait_until_admitted(deadline)
        except Refused as error:
            raise InputError(f"rank 0 at {point} refuses this process: {error}") from error
        except (ProtocolError, Gone) as error:
            problem = str(error)
        except OSError as error:
            if isinstance(error, RuntimeFailure) or error.errno in EXHAUSTED:
                raise
            problem = error.strerror or str(error)
        else:
            return _enter(channel, decode(payload, Member, "rank 0"), place, deadline, timeout)
        time.sleep(min(pauses.after(caller), max(0.0, deadline - time.monotonic())))
    raise TimedOut("join", timeout, [0], f"rank {place.rank}{tried}: {problem}")


def _enter(
    channel: FramedConnection, rank_0: Member, place: Place, deadline: float, timeout: float
) -> ControlPlane:
    """Wait, once admitted, until everybody is there."""
    with close_on_error(channel):
        left = max(0.001, deadline - time.monotonic())
        try:
            frame = await_frame(channel, "join", left, rank_0)
        except TimedOut as error:
            raise TimedOut("join", timeout, error.missing, error.hint) from error
        record = check_reply(frame, FrameKind.WELCOME, "join")
        members = decode(record, tuple[Member, ...], "rank 0")
        if [member.rank for member in members] != list(range(place.size)):
            raise RuntimeFailure("rank 0 sent members that are not those of the job; use one Weft everywhere")
    return ControlPlane(place.rank, members, {0: channel})
