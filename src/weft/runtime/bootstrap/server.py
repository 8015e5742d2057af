"""The bootstrap server of rank 0: which processes it admits to the job.

Where it listens is the business of `weft.runtime.bootstrap.meeting_point`.
"""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from weft.errors import RuntimeFailure, TimedOut, name_ranks
from weft.runtime.bootstrap import handshake
from weft.runtime.bootstrap.control_plane import ControlPlane, send_all
from weft.runtime.bootstrap.handshake import FrameKind, Gone
from weft.runtime.bootstrap.members import LossVerdict, Member, announce, decode, peer_lost

if TYPE_CHECKING:
    from weft.runtime.bootstrap.environment import Place
    from weft.runtime.bootstrap.handshake import FramedConnection, Hello
    from weft.runtime.bootstrap.listener import Applicant, Listener
    from weft.runtime.bootstrap.meeting_point import MeetingPoint

_LINGER_S: Final = 1.0
"""How long rank 0, when it has given up, still tells ranks that come why."""


class BootstrapServer:
    """Rank 0 while the others come; everything it opened is closed again unless all of them came.

    Parameters
    ----------
    place, point
        The job whose ranks it waits for, and where it listens.
    listener
        Where they come.
    timeout
        Seconds for all of them.
    """

    def __init__(self, place: Place, point: MeetingPoint, listener: Listener, timeout: float) -> None:
        self._place = place
        self._point = point
        self._listener = listener
        self._timeout = timeout
        self._started = time.monotonic()
        self._deadline = self._started + timeout
        self._selector = selectors.DefaultSelector()
        self._channels: dict[int, FramedConnection] = {}
        self._members: dict[int, Member] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for channel in self._channels.values():
                channel.close()
        self._selector.close()

    def admit_all(self, me: Member) -> ControlPlane:
        """Wait for every rank, then send the members of the job to each of them."""
        self._members[0] = me
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while len(self._members) < self._place.size:
                self._admit_some()
            members = tuple(self._members[rank] for rank in range(self._place.size))
            record = msgspec.msgpack.encode(members)
            send_all(self._channels, FrameKind.WELCOME, record, self._deadline)
        except RuntimeFailure as error:
            announce(self._channels.values(), error, "join")
            if not isinstance(error, TimedOut):
                self._tell_the_rest(error)
            raise
        return ControlPlane(0, members, self._channels)

    def _admit_some(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            missing = set(range(self._place.size)) - self._members.keys()
            # Less than the timeout, if another rank had less patience.
            waited = min(self._timeout, round(now - self._started, 1))
            hint = self._listener.describe() or f"{name_ranks(self._members)} waited at {self._point}"
            raise TimedOut("join", waited, missing, hint)
        for key, _ in self._selector.select(self._listener.wait_s(self._deadline - now)):
            if key.fileobj is not self._listener:
                self._hear_member(key.data)
        for applicant in self._listener.serve():
            self._decide(applicant)

    def _decide(self, applicant: Applicant) -> None:
        """Take or refuse a peer that knows the secret; it is told why."""
        rank = applicant.hello.rank
        reason = self._objection(applicant.hello)
        member = None
        if reason is None:
            try:
                member = decode(applicant.record, Member, f"rank {rank}")
            except RuntimeFailure as error:
                reason = str(error)
        if member is None or member.rank != rank:
            reason = reason or f"its record is that of rank {member.rank if member else '?'}"
            self._listener.turn_away(applicant, reason)
            return
        self._members[rank] = member
        # The member of rank 0, for errors should it die before all ranks have come.
        self._channels[rank] = applicant.admit(msgspec.msgpack.encode(self._members[0]))
        self._selector.register(self._channels[rank], selectors.EVENT_READ, rank)

    def _objection(self, hello: Hello) -> str | None:
        if hello.scope != handshake.hash_scope(self._place.job):
            return "it belongs to another job: WEFT_JOB differs"
        if hello.number != self._place.size:
            return f"it counts {hello.number} ranks, rank 0 counts {self._place.size}"
        if not 0 < hello.rank < self._place.size:
            return f"there is no place for a rank {hello.rank}"
        if hello.rank in self._members:
            there = self._members[hello.rank]
            return f"rank {hello.rank} is there already: host {there.host}, pid {there.pid}"
        return None

    def _tell_the_rest(self, error: RuntimeFailure) -> None:
        """For a moment, tell ranks that come only now why the job does not start."""
        verdict = LossVerdict.of(error, "join").encode()
        missing = set(range(self._place.size)) - self._members.keys()
        deadline = time.monotonic() + _LINGER_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while missing and (left := deadline - time.monotonic()) > 0:
                selector.select(self._listener.wait_s(left))
                for applicant in self._listener.serve():
                    applicant.dismiss(FrameKind.FAILED, verdict)
                    missing.discard(applicant.hello.rank)

    def _hear_member(self, rank: int) -> None:
        """A rank that was admitted can only say, before everybody is there, that its time is over."""
        try:
            frame = self._channels[rank].receive()
        except Gone as error:
            raise peer_lost(self._members[rank], "join") from error
        if frame is not None and frame[0] is FrameKind.EXPIRED:
            self._deadline = time.monotonic()
        elif frame is not None:
            raise RuntimeFailure(f"rank {rank} spoke before the job was complete; use one Weft everywhere")
