"""Shrinking: the survivors of lost ranks meet again without them.

Every rank keeps the listener open at which it was called when the job connected, and knows those of all
others, each with its token. The survivor with the lowest rank leads: it serves its listener, the others call
it. Each tells which ranks it knows to be lost and how many operations it has completed. When all ranks that
are not lost have come, the leader sends them the new group: survivors keep their order, with new numbers.

A leader that dies meanwhile is followed by the next, and survivors that lose one more of them while they
connect meet again. A rank that was declared lost and is still alive,
because it was frozen, is refused. So that a network that fell apart does not leave two jobs that both go on,
the survivors must be more than half of the ranks that are not certainly dead, or half with the lowest.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import msgspec

from weft import limits
from weft.errors import InputError, RuntimeFailure, TimedOut, name_ranks
from weft.runtime.bootstrap.control_plane import (
    ControlPlane,
    await_frame,
    check_reply,
    next_frame,
    reply_bytes,
    send_all,
)
from weft.runtime.bootstrap.dialer import Dialer, Refused, RetryPauses
from weft.runtime.bootstrap.handshake import FrameKind, Gone, Hello, ProtocolError, hash_scope
from weft.runtime.bootstrap.listener import Listener
from weft.runtime.bootstrap.members import Member, announce, decode
from weft.runtime.bootstrap.name_resolution import look_up
from weft.runtime.resources import close_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.runtime.bootstrap.handshake import FramedConnection
    from weft.runtime.bootstrap.listener import Applicant
    from weft.runtime.transport.tcp_connections import ListenAddress

_SCOPE: Final = "shrink"
_TICK_S: Final = 0.1
_PROBE_S: Final = 1.0
"""From one look at whether a rank that does not come still listens to the next."""

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_JOB_RANKS)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Set = Annotated[bytes, msgspec.Meta(max_length=limits.MAX_JOB_RANKS // 8)]


class _Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The report of a survivor: its member, its completed operations, and the ranks it knows to be lost."""

    member: Member
    completed: _Count
    lost: _Set
    dead: _Set


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of the leader: the survivors by their new rank, and their ranks before."""

    members: tuple[Member, ...]
    before: tuple[_Rank, ...]
    completed: _Count


class _LeaderLost(Exception):
    """The survivor that was to lead is gone, and the next one leads."""


@dataclass(slots=True)
class ShrinkKit:
    """What a rank keeps during a run, so that survivors can find each other.

    Parameters
    ----------
    listening
        The socket at which this rank listened when the job connected.
    addresses
        Where each rank listens, and the token that proves that a peer belongs to the job.
    earlier
        The sockets at which this rank listened before the job shrank.
    """

    listening: socket.socket
    addresses: Sequence[ListenAddress]
    earlier: list[socket.socket] = field(default_factory=list)

    def inherit(self, before: ShrinkKit) -> None:
        """Keep the sockets of an earlier kit open.

        Nobody serves them, but a rank that did not hear that the survivors are connected, because their
        leader died just then, meets at them again. It would take a rank whose socket is closed for dead, and
        go on in a group of its own.
        """
        self.earlier = [before.listening.dup(), *(one.dup() for one in before.earlier)]

    def close(self) -> None:
        """Close the listener for survivors."""
        for one in (self.listening, *self.earlier):
            one.close()


@dataclass(frozen=True)
class SurvivorGroup:
    """The survivors.

    Parameters
    ----------
    control_plane
        Of the survivors.
    before
        The rank that each of them had.
    completed
        Operations that all of them have completed.
    """

    control_plane: ControlPlane
    before: tuple[int, ...]
    completed: int


@dataclass(slots=True)
class SurvivorMeeting:
    """One meeting of the survivors, seen from one of them.

    Parameters
    ----------
    me
        This rank.
    members
        All ranks of the job so far.
    kit
        Where they listen.
    losses
        The ranks that are known to be lost, each with whether it may only be frozen.
    completed
        Operations that this rank has completed.
    timeout
        Seconds for all survivors to come.
    minimum
        How many there must be at least; None for the rule of the module.
    """

    me: int
    members: Sequence[Member]
    kit: ShrinkKit
    losses: Callable[[], Mapping[int, bool]]
    completed: int
    timeout: float
    minimum: int | None = None
    _lost: set[int] = field(default_factory=set)
    _dead: set[int] = field(default_factory=set)
    _deadline: float = 0.0
    _came: dict[int, tuple[_Report, FramedConnection]] = field(default_factory=dict)

    def run(self) -> SurvivorGroup:
        """Meet the others.

        Raises
        ------
        RuntimeFailure
            If the others have given this rank up, or too few are left.
        TimedOut
            If a rank that is not lost does not come.
        """
        self._deadline = time.monotonic() + self.timeout
        while True:
            self._look()
            leader = min(rank for rank in range(len(self.members)) if rank not in self._lost)
            if leader == self.me:
                return self._lead()
            found = self._follow(leader)
            if found is not None:
                return found
            if leader not in self._lost:  # else it may only be frozen
                self._lost.add(leader)
                self._dead.add(leader)

    def _look(self) -> None:
        """Learn of losses that were found since."""
        for rank, frozen in self.losses().items():
            self._lost.add(rank)
            if not frozen:
                self._dead.add(rank)
        self._lost.discard(self.me)
        self._dead.discard(self.me)

    def _time_left(self) -> float:
        return self._deadline - time.monotonic()

    def _give_up(self, missing: set[int]) -> NoReturn:
        raise TimedOut("shrink", self.timeout, missing, "not known to be lost, but not in shrink either")

    # The calling side.

    def _follow(self, leader: int) -> SurvivorGroup | None:
        """Be admitted by the leader and wait for the group; None if the leader is gone."""
        there, pauses = self.kit.addresses[leader], RetryPauses()
        while leader not in self._lost:
            self._look()
            if self._time_left() <= 0:
                self._give_up({leader})
            hello = Hello.make(self.me, len(self.members), _SCOPE)
            where = look_up(there.address, there.port, self._time_left())[0]
            caller = None
            try:
                report = _Report(self.members[self.me], self.completed, _pack(self._lost), _pack(self._dead))
                record, longest = msgspec.msgpack.encode(report), reply_bytes(len(self.members))
                caller = Dialer(where, there.token, hello, record, longest, connect_s=pauses.connect_s)
                return self._enter(self._be_admitted(caller, leader), leader)
            except Refused as error:
                msg = f"rank {leader}, which leads the survivors, refuses rank {self.me}: {error}"
                raise RuntimeFailure(msg) from error
            except RuntimeFailure:
                raise  # PeerLost and TimedOut are OSErrors too, which are tried again below
            except (_LeaderLost, ConnectionRefusedError):  # where nobody listens, the process is gone
                return None
            except (ProtocolError, Gone, OSError):
                time.sleep(min(pauses.after(caller), max(0.0, self._time_left())))
        return None

    def _be_admitted(self, caller: Dialer, leader: int) -> FramedConnection:
        """The channel to the leader once it has admitted this rank.

        A leader that has not called shrink yet leaves the call in the queue of its listener: so this waits
        for longer than a handshake takes.
        """
        with close_on_error(caller):
            while (admitted := caller.advance()) is None:
                self._look()
                if leader in self._lost:
                    raise _LeaderLost
                if self._time_left() <= 0:
                    self._give_up({leader})
                if not caller.connected and time.monotonic() > caller.deadline:
                    raise ProtocolError("no answer")
                caller.wait(_TICK_S)
        return admitted[0]

    def _enter(self, channel: FramedConnection, leader: int) -> SurvivorGroup:
        """Wait for the group."""
        with close_on_error(channel):
            frame = self._await_group(channel, leader)
            group = decode(check_reply(frame, FrameKind.WELCOME, "shrink"), _Group, f"rank {leader}")
            if self.me not in group.before or len(group.members) != len(group.before):
                msg = f"rank {leader} sent a group that this rank is not in; use one Weft everywhere"
                raise RuntimeFailure(msg)
        control_plane = ControlPlane(group.before.index(self.me), group.members, {0: channel})
        return SurvivorGroup(control_plane, group.before, group.completed)

    def _await_group(self, channel: FramedConnection, leader: int) -> tuple[FrameKind, bytes]:
        """Wait for what the leader says, as long as it is not known to be lost."""
        try:
            while self._time_left() > _TICK_S:
                if (frame := next_frame(channel, _TICK_S)) is not None:
                    return frame
                self._look()
                if leader in self._lost:  # frozen, since a dead one has hung up
                    raise _LeaderLost
            return await_frame(channel, "shrink", max(0.001, self._time_left()), self.members[leader])
        except TimedOut:
            raise
        except (Gone, RuntimeFailure) as error:
            raise _LeaderLost from error

    # The leader's side.

    def _lead(self) -> SurvivorGroup:
        listening, token = self.kit.listening.dup(), self.kit.addresses[self.me].token
        with close_on_error(self), Listener([listening], token, limits.MAX_EXCHANGE_BYTES) as listener:
            try:
                self._collect(listener)
                return self._welcome()
            except RuntimeFailure as error:
                announce((channel for _, channel in self._came.values()), error, "shrink")
                raise

    def close(self) -> None:
        """Close the connections to the survivors that have come."""
        for _, channel in self._came.values():
            channel.close()

    def _collect(self, listener: Listener) -> None:
        """Wait for all ranks that are not lost."""
        probe_at = time.monotonic() + _PROBE_S
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while missing := self._missing(selector):
                if self._time_left() <= 0:
                    self._give_up(missing)
                for key, _ in selector.select(listener.wait_s(min(_TICK_S, self._time_left()))):
                    if key.fileobj is not listener:
                        self._hear(key.data, selector)
                for applicant in listener.serve():
                    rank = self._admit(applicant, listener)
                    if rank is not None:
                        selector.register(self._came[rank][1], selectors.EVENT_READ, rank)
                if time.monotonic() >= probe_at:
                    self._dead |= self._probe(missing)
                    self._lost |= self._dead
                    probe_at = time.monotonic() + _PROBE_S

    def _missing(self, selector: selectors.BaseSelector) -> set[int]:
        """The ranks that have not come and are not lost; one that was lost since it came is dropped."""
        self._look()
        for rank in self._lost & self._came.keys():
            self._drop(rank, selector)
        return set(range(len(self.members))) - {self.me} - self._lost - self._came.keys()

    def _admit(self, applicant: Applicant, listener: Listener) -> int | None:
        """Take a survivor, or refuse it and say why; its rank if it was taken."""
        rank, hello = applicant.hello.rank, applicant.hello
        if hello.scope != hash_scope(_SCOPE) or hello.number != len(self.members):
            listener.turn_away(applicant, "it does not belong to these survivors")
        elif not 0 <= rank < len(self.members) or rank == self.me:
            listener.turn_away(applicant, f"there is no rank {rank} to wait for")
        elif rank in self._lost:
            listener.turn_away(applicant, "the others have declared it lost and go on without it")
        else:
            report = decode(applicant.record, _Report, f"rank {rank}")
            if rank in self._came:  # it lost its connection and calls again
                self._came[rank][1].close()
            self._came[rank] = report, applicant.admit()
            self._lost |= _unpack(report.lost) - self._came.keys() - {self.me}
            self._dead |= _unpack(report.dead) - self._came.keys() - {self.me}
            return rank
        return None

    def _hear(self, rank: int, selector: selectors.BaseSelector) -> None:
        """A survivor that was admitted can only die, or lose its patience, before all have come."""
        channel = self._came[rank][1]
        try:
            frame = channel.receive()
        except Gone:
            self._drop(rank, selector)  # it calls again, or is found to be dead
            return
        if frame is not None:
            self._deadline = time.monotonic()

    def _drop(self, rank: int, selector: selectors.BaseSelector) -> None:
        channel = self._came.pop(rank)[1]
        selector.unregister(channel)
        channel.close()

    def _probe(self, missing: set[int]) -> set[int]:
        """Ranks that nobody listens for any more: their processes are gone."""
        gone = set()
        for rank in missing:
            there = self.kit.addresses[rank]
            family, where = look_up(there.address, there.port, _TICK_S)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(_TICK_S)
                if probe.connect_ex(where) == errno.ECONNREFUSED:
                    gone.add(rank)
        return gone

    def _welcome(self) -> SurvivorGroup:
        """Number the survivors anew, and tell them."""
        before = tuple(sorted({self.me, *self._came}))
        self._check_quorum(before)
        records = {rank: report.member for rank, (report, _) in self._came.items()}
        records[self.me] = self.members[self.me]
        members = tuple(msgspec.structs.replace(records[rank], rank=new) for new, rank in enumerate(before))
        completed = min([self.completed, *(report.completed for report, _ in self._came.values())])
        payload = msgspec.msgpack.encode(_Group(members, before, completed))
        channels = {before.index(rank): channel for rank, (_, channel) in self._came.items()}
        send_all(channels, FrameKind.WELCOME, payload, self._deadline)
        return SurvivorGroup(ControlPlane(0, members, channels), before, completed)

    def _check_quorum(self, before: Sequence[int]) -> None:
        if self.minimum is not None:
            enough = len(before) >= self.minimum
            wanted = f"at least {self.minimum} are wanted"
        else:
            alive = [rank for rank in range(len(self.members)) if rank not in self._dead]
            enough = 2 * len(before) > len(alive) or (2 * len(before) == len(alive) and alive[0] in before)
            silent = name_ranks(set(alive) - set(before))
            wanted = (
                f"{silent} may still be alive elsewhere, and of {len(alive)} most must come; see minimum="
            )
        if not enough:
            raise RuntimeFailure(f"shrink: {name_ranks(before)} of {len(self.members)} are left; {wanted}")


def _pack(ranks: set[int]) -> bytes:
    """A set of ranks as bits."""
    number = sum(1 << rank for rank in ranks)
    return number.to_bytes(-(-number.bit_length() // 8), "little")


def _unpack(data: bytes) -> set[int]:
    number = int.from_bytes(data, "little")
    return {rank for rank in range(number.bit_length()) if number >> rank & 1}


def check_minimum(minimum: int | None, ranks: int) -> None:
    """Refuse a number of survivors that no job can have."""
    if minimum is not None and not (hasattr(minimum, "__index__") and 1 <= minimum <= ranks):
        raise InputError(f"minimum {minimum!r}: expected 1 to {ranks} ranks")
