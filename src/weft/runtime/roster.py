"""Who is in the job, and small exchanges among all of them through rank 0.

A wait has a deadline on every rank. One whose time is over tells rank 0 so, and rank 0 tells everybody which
ranks are missing, so that all name the same ones; only a rank 0 that is itself missing cannot.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeVar

import msgspec

from weft import limits
from weft.errors import InputError, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.wire import Channel, Gone, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

VERDICT_GRACE_S: Final = 2.0
"""How much longer than its own deadline a rank waits for rank 0 to say who is missing."""

_LONGEST_WAIT_S: Final = 1e6
_LENGTH: Final = struct.Struct("!I")
_NAMESPACES: Final = ("ipc", "net", "pid")

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_JOB_RANKS)]
_T = TypeVar("_T")
_Text = Annotated[str, msgspec.Meta(max_length=255)]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of the job.

    ``boot_id`` names its host: the running kernel and the namespaces through which processes reach each
    other, so that two containers on one machine are two hosts.
    """

    rank: _Rank
    host: _Text
    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    boot_id: _Text

    @property
    def machine(self) -> str:
        """The running kernel alone: what the processors belong to."""
        return self.boot_id.partition("/")[0]

    @staticmethod
    def here(rank: int) -> Member:
        """Member that this process is."""
        return Member(rank, socket.gethostname()[:64], os.getpid(), host_identity())


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why rank 0 ended a wait, in a form that travels."""

    op: _Text
    lost: _Rank | None = None
    host: _Text | None = None
    pid: int | None = None
    missing: Annotated[tuple[_Rank, ...], msgspec.Meta(max_length=limits.MAX_JOB_RANKS)] = ()
    seconds: float | None = None
    text: Annotated[str, msgspec.Meta(max_length=600)] | None = None

    @staticmethod
    def of(error: RuntimeFailure, op: str) -> Verdict:
        """Verdict that `error` is."""
        if isinstance(error, PeerLost):
            return Verdict(op, lost=error.rank, host=error.host, pid=error.pid)
        if isinstance(error, TimedOut):
            hint = error.hint and error.hint[:600]
            return Verdict(op, missing=error.missing, seconds=error.seconds, text=hint)
        return Verdict(op, text=str(error)[:600])

    def error(self) -> RuntimeFailure:
        """Error that this verdict is, on whichever rank."""
        if self.lost is not None:
            return PeerLost(self.lost, self.host, self.pid, self.op)
        if self.seconds is not None:
            return TimedOut(self.op, self.seconds, self.missing, self.text)
        return RuntimeFailure(self.text or f"{self.op} failed")


def host_identity() -> str:
    """Name of this host that no other has: equal only for processes that can share memory."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    spaces = (f"{name}:{Path('/proc/self/ns', name).stat().st_ino}" for name in _NAMESPACES)
    return "/".join((boot_id, *spaces))


def check_timeout(timeout: float) -> float:
    """Refuse a time that no wait can have."""
    number = isinstance(timeout, int | float)
    if not (number and math.isfinite(timeout) and 0 < timeout <= _LONGEST_WAIT_S):
        msg = f"timeout {timeout}: expected seconds, more than 0 and at most {_LONGEST_WAIT_S:,.0f}"
        raise InputError(msg)
    return timeout


def decode(data: bytes, kind: type[_T], sender: str) -> _T:
    """Value in a frame's payload, checked."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"{sender} sent what cannot be read: {error}; use one Weft everywhere"
        raise RuntimeFailure(msg) from error


class Roster:
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
    """

    def __init__(self, rank: int, members: tuple[Member, ...], channels: dict[int, Channel]) -> None:
        self.rank = rank
        self.members = members
        self._channels = channels
        self._ended: str | None = None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    @property
    def address(self) -> str:
        """Address of this host on the network where it reaches rank 0, or on rank 0 the others."""
        channel = next(iter(self._channels.values()))
        return str(channel.connection.getsockname()[0])

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
        return self._meet(Kind.EXCHANGE, payload, timeout)

    def barrier(self, timeout: float = 60.0) -> None:
        """Return once every rank has called this."""
        self._meet(Kind.BARRIER, b"", timeout)

    def give_up(self, error: RuntimeFailure, op: str) -> None:
        """Tell the others why, if this is rank 0, so that they do not take rank 0 for the lost one."""
        if self.rank == 0 and self._ended is None:
            announce(self._channels.values(), error, op)
            self._ended = str(error)

    def close(self) -> None:
        """Close the connections; the others see this process leave."""
        self._ended = self._ended or "it was closed"
        for channel in self._channels.values():
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _meet(self, kind: Kind, payload: bytes, timeout: float) -> list[bytes]:
        check_timeout(timeout)
        if self._ended is not None:
            msg = f"this roster cannot be used any more: {self._ended}"
            raise RuntimeFailure(msg)
        try:
            if self.rank == 0:
                return self._collect(kind, payload, timeout)
            return self._attend(kind, payload, timeout)
        except BaseException as error:
            # An interrupted exchange has left frames behind that the next one would take for its own.
            self._ended = str(error) or type(error).__name__
            raise

    def _collect(self, kind: Kind, payload: bytes, timeout: float) -> list[bytes]:
        """Rank 0: take everybody's part, then send all parts to everybody."""
        op = kind.name.lower()
        parts = {0: payload}
        started = time.monotonic()
        deadline = started + timeout
        try:
            with selectors.DefaultSelector() as selector:
                for rank, channel in self._channels.items():
                    selector.register(channel, selectors.EVENT_READ, rank)
                while missing := self._channels.keys() - parts.keys():
                    if (left := deadline - time.monotonic()) <= 0:
                        waited = min(timeout, round(time.monotonic() - started, 1))
                        raise TimedOut(op, waited, missing)
                    for key, _ in selector.select(left):
                        frame = self._receive(key.data, op)
                        if frame is None:
                            continue
                        if frame[0] is not Kind.EXPIRED:
                            parts[key.data] = self._check_part(key.data, frame, kind, parts)
                        elif key.data in parts:  # else it is about a call that was answered meanwhile
                            deadline = time.monotonic()
            everything = b"".join(_LENGTH.pack(len(parts[rank])) + parts[rank] for rank in range(self.size))
            send_all(self._channels, self.members, kind, everything, deadline)
        except RuntimeFailure as error:
            announce(self._channels.values(), error, op)
            raise
        return [parts[rank] for rank in range(self.size)]

    def _receive(self, rank: int, op: str) -> tuple[Kind, bytes] | None:
        try:
            return self._channels[rank].receive()
        except Gone as error:
            raise lost(self.members[rank], op) from error

    def _check_part(self, rank: int, frame: tuple[Kind, bytes], kind: Kind, parts: dict[int, bytes]) -> bytes:
        found, payload = frame
        if found is not kind or rank in parts:
            msg = f"rank {rank} is in {found.name.lower()} while rank 0 is in {kind.name.lower()}"
            raise RuntimeFailure(f"{msg}; every rank must make the same calls in the same order")
        return payload

    def _attend(self, kind: Kind, payload: bytes, timeout: float) -> list[bytes]:
        """Any other rank: send the own part to rank 0 and wait for all."""
        op = kind.name.lower()
        channel = self._channels[0]
        channel.queue(kind, payload)
        found, everything = await_frame(channel, op, timeout, self.members[0])
        if found is not kind:
            msg = f"rank 0 is in {found.name.lower()} while rank {self.rank} is in {op}"
            raise RuntimeFailure(f"{msg}; every rank must make the same calls in the same order")
        return self._split(everything)

    def _split(self, everything: bytes) -> list[bytes]:
        parts: list[bytes] = []
        place = 0
        while place + _LENGTH.size <= len(everything) and len(parts) < self.size:
            (length,) = _LENGTH.unpack_from(everything, place)
            place += _LENGTH.size + length
            parts.append(everything[place - length : place])
        if len(parts) != self.size or place != len(everything):
            msg = "rank 0 sent an exchange that does not have one part per rank; use one Weft everywhere"
            raise RuntimeFailure(msg)
        return parts


def reply_bytes(size: int) -> int:
    """Longest frame that rank 0 sends in a job of this size."""
    return size * (_LENGTH.size + limits.MAX_EXCHANGE_BYTES)


def lost(member: Member, op: str) -> PeerLost:
    """Error for a member that is gone."""
    return PeerLost(member.rank, member.host, member.pid, op)


def await_frame(channel: Channel, op: str, timeout: float, rank_0: Member | None) -> tuple[Kind, bytes]:
    """Send what is queued, and wait for what rank 0 answers; its verdict is raised as the error it is."""
    try:
        frame = _next_frame(channel, timeout)
        if frame is None:
            channel.queue(Kind.EXPIRED, b"")
            frame = _next_frame(channel, VERDICT_GRACE_S)
    except Gone as error:
        raise (lost(rank_0, op) if rank_0 else PeerLost(0, op=op)) from error
    if frame is None:
        raise TimedOut(op, timeout, [0])
    if frame[0] is Kind.FAILED:
        raise decode(frame[1], Verdict, "rank 0").error()
    return frame


def _next_frame(channel: Channel, wait_s: float) -> tuple[Kind, bytes] | None:
    deadline = time.monotonic() + wait_s
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while (left := deadline - time.monotonic()) > 0:
            selector.select(left)
            _flush_if_open(channel)
            if (frame := channel.receive()) is not None:
                return frame
            if not channel.sending:
                selector.modify(channel, selectors.EVENT_READ)
    return None


def _flush_if_open(channel: Channel) -> None:
    try:
        channel.flush()
    except Gone:
        # Rank 0 may have said why before it left: that is still there to be read.
        return


def send_all(
    channels: dict[int, Channel],
    members: tuple[Member, ...],
    kind: Kind,
    payload: bytes,
    deadline: float,
) -> None:
    """Send one frame to everybody, whoever is slow notwithstanding.

    All have come, so that those whose time is nearly over are still worth a moment.
    """
    op = "join" if kind is Kind.WELCOME else kind.name.lower()
    started = time.monotonic()
    deadline = max(deadline, started + VERDICT_GRACE_S)
    with selectors.DefaultSelector() as selector:
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
                except Gone as error:
                    raise lost(members[key.data], op) from error
                if not channel.sending:
                    selector.unregister(channel)


def announce(channels: Iterable[Channel], error: RuntimeFailure, op: str) -> None:
    """Tell everybody why rank 0 gives up, as far as they still listen."""
    payload = msgspec.msgpack.encode(Verdict.of(error, op))
    for channel in channels:
        channel.queue(Kind.FAILED, payload)
        _flush_if_open(channel)
