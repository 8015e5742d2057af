"""The members of a job, and the verdict by which ranks learn that one of them is lost."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import msgspec

from weft import limits
from weft.errors import InputError, PeerLost, RuntimeFailure, TimedOut
from weft.runtime.bootstrap.handshake import FrameKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.errors import WeftError
    from weft.runtime.bootstrap.handshake import FramedConnection

_NAMESPACES: Final = ("ipc", "net", "pid")
_LONGEST_TEXT: Final = 600

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_JOB_RANKS)]
_T = TypeVar("_T")
_Text = Annotated[str, msgspec.Meta(max_length=255)]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of the job.

    ``boot_id`` names its host: the running kernel and the namespaces through which processes reach each
    other, so that two containers on one machine are two hosts. ``job_rank`` stays the same where survivors or
    some of the ranks are numbered anew, which changes ``rank``.
    """

    rank: _Rank
    host: _Text
    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    boot_id: _Text
    job_rank: _Rank | None = None

    def __str__(self) -> str:
        renumbered = self.job_rank not in (None, self.rank)
        in_job = f"rank {self.job_rank} of the job, " if renumbered else ""
        return f"rank {self.rank} ({in_job}host {self.host}, pid {self.pid})"

    @property
    def machine(self) -> str:
        """The running kernel alone: what the processors belong to."""
        return self.boot_id.partition("/")[0]

    @staticmethod
    def here(rank: int) -> Member:
        """Member that this process is."""
        return Member(
            rank, socket.gethostname()[:64], os.getpid(), host_identity(), job_rank=_rank_in_job(rank)
        )


def _rank_in_job(rank: int) -> int:
    """The rank that the launcher gave this process; the given one if there is no launcher."""
    from weft.runtime.bootstrap.environment import find_place

    try:
        return find_place().rank
    except InputError:
        return rank


def host_identity() -> str:
    """Name of this host that no other has: equal only for processes that can share memory."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    spaces = (f"{name}:{Path('/proc/self/ns', name).stat().st_ino}" for name in _NAMESPACES)
    return "/".join((boot_id, *spaces))


def peer_lost(member: Member, op: str, reason: str | None = None, step: int | None = None) -> PeerLost:
    """Error for a member that is gone, or that gives up for a reason, at a step of a schedule."""
    return PeerLost(member.rank, member.host, member.pid, op, step, reason)


class LossVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why a wait of all ranks ended, in a form that travels.

    Rank 0 sends it to all others; another rank sends it to rank 0 when it finds something wrong.
    """

    op: _Text
    lost: _Rank | None = None
    host: _Text | None = None
    pid: int | None = None
    missing: Annotated[tuple[_Rank, ...], msgspec.Meta(max_length=limits.MAX_JOB_RANKS)] = ()
    seconds: float | None = None
    text: Annotated[str, msgspec.Meta(max_length=_LONGEST_TEXT)] | None = None

    @staticmethod
    def of(error: WeftError, op: str) -> LossVerdict:
        """Make the verdict of an error; `op` is the operation, where the error does not name it."""
        if isinstance(error, PeerLost):
            reason = error.reason and error.reason[:_LONGEST_TEXT]
            return LossVerdict(error.op or op, lost=error.rank, host=error.host, pid=error.pid, text=reason)
        if isinstance(error, TimedOut):
            hint = error.hint and error.hint[:_LONGEST_TEXT]
            return LossVerdict(error.op, missing=error.missing, seconds=error.seconds, text=hint)
        return LossVerdict(op, text=str(error)[:_LONGEST_TEXT])

    def error(self) -> RuntimeFailure:
        """Make the error of this verdict, the same on all ranks."""
        if self.lost is not None:
            return PeerLost(self.lost, self.host, self.pid, self.op, reason=self.text)
        if self.seconds is not None:
            return TimedOut(self.op, self.seconds, self.missing, self.text)
        return RuntimeFailure(self.text or f"{self.op} failed")

    def encode(self) -> bytes:
        """Payload of a frame."""
        return msgspec.msgpack.encode(self)


def decode(data: bytes, kind: type[_T], sender: str) -> _T:
    """Value in a frame's payload, checked."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        msg = f"{sender} sent what cannot be read: {error}; use one Weft everywhere"
        raise RuntimeFailure(msg) from error


def announce(channels: Iterable[FramedConnection], error: WeftError, op: str) -> None:
    """Tell everybody why rank 0 gives up, as far as they still listen."""
    payload = LossVerdict.of(error, op).encode()
    for channel in channels:
        channel.tell(FrameKind.FAILED, payload)
