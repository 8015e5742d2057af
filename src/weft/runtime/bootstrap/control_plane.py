"""The control plane of a job: small exchanges among all ranks through rank 0, and reports of lost ranks.

A wait has a deadline on every rank. A rank whose time is over tells rank 0 so, and rank 0 tells everybody
which ranks are missing, so that all name the same ones; only a rank 0 that is itself missing cannot.

Rank 0 also decides why a start fails. It sees a rank die by the end of its connection. A rank that cannot
reach another one, or cannot go on itself, reports that to rank 0 and waits for the verdict, instead of
leaving and being taken for the lost one. Between two exchanges, while ranks connect to each other,
`ControlPlane.hear` does all this, called whenever one of the connections in `ControlPlane.watched` has
something to read.
"""

from __future__ import annotations

import numbers
import selectors
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec

from weft import limits
from weft.errors import InputError, PeerLost, RuntimeFailure, TimedOut, WeftError, quote
from weft.runtime.bootstrap.handshake import FrameKind, Gone
from weft.runtime.bootstrap.members import LossVerdict, announce, decode, peer_lost
from weft.runtime.launcher.failure_reports import FailureReporter
from weft.runtime.resources import ran_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.runtime.bootstrap.handshake import FramedConnection
    from weft.runtime.bootstrap.members import Member

VERDICT_GRACE_S: Final = 2.0
"""How much longer than its own deadline a rank waits for rank 0 to name the missing ranks."""

_SETTLE_S: Final = 0.5
"""How long rank 0 waits for a death that explains why a rank cannot reach another one."""

_LONGEST_WAIT_S: Final = 1e6
_PART_HEADER_BYTES: Final = 8
"""More than what encoding adds to each part of an exchange."""


def check_timeout(timeout: float, name: str = "timeout") -> float:
    """Return a number of seconds that a wait can have, numpy's numbers too; refuse any other."""
    expected = f"expected seconds, more than 0 and at most {_LONGEST_WAIT_S:,.0f}"
    if not isinstance(timeout, numbers.Real) or isinstance(timeout, bool):
        msg = f"{name} {quote(str(timeout))}: {expected}, as a number, not {type(timeout).__name__}"
        raise InputError(msg)
    if not 0 < timeout <= _LONGEST_WAIT_S:  # also where it is not a number, or without an end
        raise InputError(f"{name} {timeout}: {expected}")
    return float(timeout)


class ControlPlane:
    """The processes of a job, connected through rank 0; made by `weft.runtime.join`.

    One thread at a time may use it, and every rank makes the same calls in the same order. After an error it
    is of no further use.

    Parameters
    ----------
    rank
        This process.
    members
        Everybody, by rank.
    channels
        On rank 0 one to each other rank; elsewhere one to rank 0.

    Attributes
    ----------
    reporter
        Tells the launcher why this rank fails.
    """

    def __init__(self, rank: int, members: tuple[Member, ...], channels: dict[int, FramedConnection]) -> None:
        self.rank = rank
        self.members = members
        self.reporter = FailureReporter()
        self._channels = channels
        self._ended: str | None = None
        self._early: dict[int, tuple[FrameKind, bytes]] = {}
        self.overdue = False
        """Whether a rank's time for the next exchange was over before this rank, 0, had come to it."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    @property
    def address(self) -> str:
        """Address of this host on the network where it reaches rank 0, or on rank 0 the others."""
        channel = next(iter(self._channels.values()))
        return str(channel.connection.getsockname()[0])

    @property
    def watched(self) -> Mapping[int, FramedConnection]:
        """Connections that tell of losses, by rank: all of them on rank 0, that to rank 0 elsewhere."""
        return self._channels

    def exchange(self, payload: bytes, timeout: float = 60.0) -> list[bytes]:
        """Give every rank the payloads of all, by rank.

        Raises
        ------
        LimitError
            The payload is larger than `weft.limits.MAX_EXCHANGE_BYTES`.
        PeerLost, TimedOut
            A rank is gone, or did not come; all ranks name the same ones.
        """
        limits.check("bytes to exchange", len(payload), limits.MAX_EXCHANGE_BYTES)
        return self._meet(FrameKind.EXCHANGE, payload, timeout)

    def barrier(self, timeout: float = 60.0) -> None:
        """Return once every rank has called this."""
        self._meet(FrameKind.BARRIER, b"", timeout)

    def hear(self, rank: int, op: str) -> None:
        """Read what has come on a watched connection, between two exchanges.

        Parameters
        ----------
        rank
            Whose connection it is.
        op
            What this rank is doing.

        Raises
        ------
        PeerLost, TimedOut, RuntimeFailure
            If the job cannot go on; all ranks raise the same.
        """
        try:
            if self.rank == 0:
                self._overhear(rank, op)
            elif (frame := self._receive(0, op)) is not None:
                check_reply(frame, None, op)
        except RuntimeFailure as error:
            self._end(error, op)
            raise

    def fail(self, error: WeftError, op: str) -> WeftError:
        """Tell all ranks why this one cannot go on; the error for it to raise.

        An error that is this rank's own fault stays what it is, and the others lose this rank for that
        reason. If it concerns a peer, this rank raises the verdict of rank 0, as all ranks do: the peer may
        have died, which rank 0 knows.
        """
        if self._ended is not None or not self._channels:
            return error
        me = self.members[self.rank]
        if not isinstance(error, RuntimeFailure) or ran_out(error):
            self._report(peer_lost(me, op, str(error)), op, 0.0)
            return error
        named = isinstance(error, PeerLost | TimedOut)
        return self._report(error if named else RuntimeFailure(f"{me}: {error}"), op, VERDICT_GRACE_S)

    def give_up(self, rank: int) -> None:
        """Hang up on a rank that is found to be lost, if connected with it; may be called from any thread.

        An exchange under way fails as if the process had ended, which the kernel does not tell of a rank that
        is frozen.
        """
        if rank in self._channels:
            with suppress(OSError):  # it has hung up itself
                self._channels[rank].connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections; the others see this process leave."""
        self._ended = self._ended or "it was closed"
        for channel in self._channels.values():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _meet(self, kind: FrameKind, payload: bytes, timeout: float) -> list[bytes]:
        check_timeout(timeout)
        if self._ended is not None:
            raise RuntimeFailure(f"this control plane cannot be used any more: {self._ended}")
        try:
            if self.rank == 0:
                return self._collect(kind, payload, timeout)
            return self._attend(kind, payload, timeout)
        except RuntimeFailure as error:
            self._end(error, kind.name.lower())
            self.reporter.tell(error)
            raise
        except BaseException as error:
            # An interrupted exchange has left frames behind that the next one would take for its own.
            self._ended = str(error) or type(error).__name__
            raise

    def _end(self, error: WeftError, op: str) -> None:
        if self.rank == 0 and self._ended is None:
            announce(self._channels.values(), error, op)
        self._ended = self._ended or str(error)

    def _collect(self, kind: FrameKind, payload: bytes, timeout: float) -> list[bytes]:
        """Rank 0: take everybody's part, then send all parts to everybody."""
        op = kind.name.lower()
        started = time.monotonic()
        deadline = started if self.overdue else started + timeout
        parts = {0: payload}
        for rank, early in self._early.items():
            parts[rank] = self._check_part(rank, early, kind, parts)
        self._early.clear()
        self.overdue = False
        with selectors.PollSelector() as selector:
            for rank, channel in self._channels.items():
                selector.register(channel, selectors.EVENT_READ, rank)
            while missing := self._channels.keys() - parts.keys():
                if (left := deadline - time.monotonic()) <= 0:
                    waited = round(min(timeout, time.monotonic() - started), 1)
                    raise self._judge(TimedOut(op, waited, missing), op)
                for key, _ in selector.select(left):
                    frame = self._take(key.data, op)
                    if frame is None:
                        continue
                    if frame[0] is not FrameKind.EXPIRED:
                        parts[key.data] = self._check_part(key.data, frame, kind, parts)
                    elif key.data in parts:  # else it is about a call that was answered meanwhile
                        deadline = time.monotonic()
        everything = [parts[rank] for rank in range(self.size)]
        send_all(self._channels, kind, msgspec.msgpack.encode(everything), deadline)
        return everything

    def _overhear(self, rank: int, op: str) -> None:
        """Rank 0, between two exchanges: keep what a rank says that is already in the next one."""
        while (frame := self._take(rank, op)) is not None:
            if frame[0] is FrameKind.EXPIRED:
                self.overdue = self.overdue or rank in self._early
            elif rank in self._early:
                msg = f"rank {rank} has sent two parts of one exchange; use one Weft everywhere"
                raise RuntimeFailure(msg)
            else:
                self._early[rank] = frame

    def _take(self, rank: int, op: str) -> tuple[FrameKind, bytes] | None:
        """Rank 0: the next frame of a rank, if it has come; raises what the rank reports."""
        frame = self._receive(rank, op)
        if frame is not None and frame[0] is FrameKind.REPORT:
            raise self._judge(decode(frame[1], LossVerdict, f"rank {rank}").error(), op, rank)
        return frame

    def _receive(self, rank: int, op: str) -> tuple[FrameKind, bytes] | None:
        try:
            return self._channels[rank].receive()
        except Gone as error:
            raise peer_lost(self.members[rank], op) from error

    def _judge(self, error: WeftError, op: str, reporter: int | None = None) -> WeftError:
        """Rank 0: what really happened, when it fails itself or a rank reports that it has.

        A death explains why others cannot reach a rank. A rank that does not come because it waits for
        another one says so at its own deadline, which is about the same.
        """
        if isinstance(error, PeerLost):
            return error
        reports = {} if reporter is None else {reporter: error}
        deadline = time.monotonic() + _SETTLE_S
        with selectors.PollSelector() as selector:
            for rank, channel in self._channels.items():
                selector.register(channel, selectors.EVENT_READ, rank)
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    try:
                        frame = self._channels[key.data].receive()
                    except Gone:
                        if key.data not in reports:
                            return peer_lost(self.members[key.data], op)
                        selector.unregister(key.fileobj)  # it has said why it leaves
                        continue
                    if frame is not None and frame[0] is FrameKind.REPORT:
                        reports[key.data] = decode(frame[1], LossVerdict, f"rank {key.data}").error()
        return _weigh(error, reports)

    def _report(self, error: WeftError, op: str, wait_s: float) -> WeftError:
        """Tell rank 0 of an error and wait for its verdict, but not longer than so many seconds."""
        if self.rank == 0:
            found = self._judge(error, op) if wait_s else error
        else:
            found = self._await_verdict(error, op, wait_s)
        self._end(found, op)
        return found

    def _await_verdict(self, error: WeftError, op: str, wait_s: float) -> WeftError:
        channel = self._channels[0]
        channel.queue(FrameKind.REPORT, LossVerdict.of(error, op).encode())
        try:
            frame = next_frame(channel, wait_s)
            while frame is not None and frame[0] is not FrameKind.FAILED:
                frame = next_frame(channel, wait_s)
        except Gone:
            return peer_lost(self.members[0], op)
        return error if frame is None else decode(frame[1], LossVerdict, "rank 0").error()

    def _check_part(
        self, rank: int, frame: tuple[FrameKind, bytes], kind: FrameKind, parts: dict[int, bytes]
    ) -> bytes:
        found, payload = frame
        if found is not kind or rank in parts:
            msg = f"rank {rank} is in {found.name.lower()} while rank 0 is in {kind.name.lower()}"
            raise RuntimeFailure(f"{msg}; every rank must make the same calls in the same order")
        return payload

    def _attend(self, kind: FrameKind, payload: bytes, timeout: float) -> list[bytes]:
        """Any other rank: send the own part to rank 0 and wait for all."""
        op = kind.name.lower()
        channel = self._channels[0]
        channel.queue(kind, payload)
        reply = check_reply(await_frame(channel, op, timeout, self.members[0]), kind, op)
        parts = decode(reply, list[bytes], "rank 0")
        if len(parts) != self.size:
            msg = "rank 0 sent an exchange that does not have one part per rank; use one Weft everywhere"
            raise RuntimeFailure(msg)
        return parts


def _weigh(error: WeftError, reports: dict[int, WeftError]) -> WeftError:
    """Which error to believe: that a rank gave up, else one with another reason, else the missing ranks."""
    late = []
    for one in sorted((error, *reports.values()), key=lambda one: not isinstance(one, PeerLost)):
        if not isinstance(one, TimedOut):
            return one
        late.append(one)
    named = {rank for one in late for rank in one.missing}
    missing = sorted(named - reports.keys() or named)  # a rank that reports something is there
    return TimedOut(late[-1].op, late[-1].seconds, missing, late[-1].hint)


def reply_bytes(size: int) -> int:
    """Longest frame that rank 0 sends in a job of this size."""
    return size * (_PART_HEADER_BYTES + limits.MAX_EXCHANGE_BYTES)


def await_frame(
    channel: FramedConnection, op: str, timeout: float, rank_0: Member
) -> tuple[FrameKind, bytes]:
    """Send what is queued, and wait for what rank 0 answers, which may be its verdict."""
    try:
        frame = next_frame(channel, timeout)
        if frame is None:
            channel.queue(FrameKind.EXPIRED, b"")
            frame = next_frame(channel, VERDICT_GRACE_S)
    except Gone as error:
        raise peer_lost(rank_0, op) from error
    if frame is None:
        raise TimedOut(op, round(timeout, 1), [0])
    return frame


def check_reply(frame: tuple[FrameKind, bytes], kind: FrameKind | None, op: str) -> bytes:
    """Any rank but 0: what rank 0 answers, unless that is its verdict or belongs to another operation."""
    found, payload = frame
    if found is FrameKind.FAILED:
        raise decode(payload, LossVerdict, "rank 0").error()
    if found is not kind:
        msg = f"rank 0 is in {found.name.lower()} while this rank is in {op}"
        raise RuntimeFailure(f"{msg}; every rank must make the same calls in the same order")
    return payload


def next_frame(channel: FramedConnection, wait_s: float) -> tuple[FrameKind, bytes] | None:
    """Send what is queued, and wait for a frame; None if none comes within so many seconds."""
    deadline = time.monotonic() + wait_s
    channel.flush_if_open()
    with selectors.PollSelector() as selector:
        selector.register(channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while (left := deadline - time.monotonic()) > 0:
            selector.select(left)
            channel.flush_if_open()
            if (frame := channel.receive()) is not None:
                return frame
            if not channel.sending:
                selector.modify(channel, selectors.EVENT_READ)
    return None


def send_all(channels: dict[int, FramedConnection], kind: FrameKind, payload: bytes, deadline: float) -> None:
    """Send one frame to all ranks, without waiting for one rank before the next.

    All have come, so that those whose time is nearly over are still worth a moment. A rank that is gone
    meanwhile is left to the next exchange, which names it: this one is complete on all other ranks.
    """
    op = "join" if kind is FrameKind.WELCOME else kind.name.lower()
    started = time.monotonic()
    deadline = max(deadline, started + VERDICT_GRACE_S)
    with selectors.PollSelector() as selector:
        for rank, channel in channels.items():
            channel.queue(kind, payload)
            selector.register(channel, selectors.EVENT_WRITE, rank)
        while pending := selector.get_map():
            if (left := deadline - time.monotonic()) <= 0:
                waited = round(deadline - started, 1)
                raise TimedOut(op, waited, [key.data for key in pending.values()], "the answer is not read")
            for key, _ in selector.select(left):
                channel = channels[key.data]
                try:
                    channel.flush()
                except Gone:
                    selector.unregister(channel)
                    continue
                if not channel.sending:
                    selector.unregister(channel)
