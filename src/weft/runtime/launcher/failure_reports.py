"""Failure reports: a rank tells the launcher why it fails, so that ``weft run`` can say which failed first.

When one rank fails, the others fail because of it, and their exit codes look alike. So a communicator that
fails writes one line of JSON into a pipe that the ranks have inherited from the launcher: what kind of
failure it is, and which ranks it names. `weft.runtime.launcher.first_failure` judges by these reports.

All ranks share one pipe. A line is shorter than ``PIPE_BUF``, so lines of different ranks do not mix, and a
rank never waits for the launcher: a report that finds the pipe full is dropped.
"""

from __future__ import annotations

import os
import re
import select
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from weft import limits
from weft.errors import DesyncError, LinkCorrupted, LinkLost, PeerLost, RuntimeFailure, TimedOut

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE: Final = "WEFT_REPORT"
"""Names the pipe: its descriptor, then device and inode, which tell it from another file of that number."""

_ADDRESS: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,20}):([0-9]{1,20})")
_MOST_NAMED: Final = 64
_LONGEST_OP: Final = 255
_READS: Final = 64
"""Reads that empty a full pipe."""

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=limits.MAX_JOB_RANKS)]


class FailureReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one rank says about itself.

    Parameters
    ----------
    rank
        Which rank this is.
    kind
        ``joined``: the rank has met the others, and earlier failures no longer count. ``lost``, ``differs``
        and ``timed_out`` are `PeerLost`, `DesyncError` and `TimedOut`. ``cut`` and ``corrupt`` are `LinkLost`
        and `LinkCorrupted`. ``failed`` is any other failure.
    named
        The ranks that are lost, differ or are waited for, or that are at the ends of the link.
    op
        What this rank was doing.
    fingerprint
        Of that operation, where ranks are in different ones.
    """

    rank: _Rank
    kind: Literal["joined", "lost", "differs", "timed_out", "cut", "corrupt", "failed"]
    named: Annotated[tuple[_Rank, ...], msgspec.Meta(max_length=_MOST_NAMED)] = ()
    op: Annotated[str, msgspec.Meta(max_length=_LONGEST_OP)] = ""
    fingerprint: Annotated[str, msgspec.Meta(max_length=16)] = ""

    @property
    def blames(self) -> bool:
        """Whether the failure is said to be that of another rank."""
        return self.kind in ("lost", "differs", "timed_out") and bool(self.named)


class FailureReporter:
    """A rank's end of the pipe.

    Parameters
    ----------
    descriptor
        Of the pipe; None where no launcher reads reports, and then nothing is written.
    rank
        Which rank of the job this process is.
    ranks
        The job's number of each rank that errors name; None where these are the same.
    """

    def __init__(
        self, descriptor: int | None = None, rank: int = 0, ranks: Sequence[int] | None = None
    ) -> None:
        self._descriptor, self._rank, self._ranks = descriptor, rank, ranks
        self._process = os.getpid()

    @staticmethod
    def open(address: str | None, rank: int) -> FailureReporter:
        """Reporter on the pipe that the environment names, if this process has inherited it."""
        if (match := _ADDRESS.fullmatch(address or "")) is not None:
            descriptor, device, inode = map(int, match.groups())
            with suppress(OSError):
                found = os.fstat(descriptor)
                if stat.S_ISFIFO(found.st_mode) and (found.st_dev, found.st_ino) == (device, inode):
                    os.set_inheritable(descriptor, False)  # programs that this rank starts are no ranks
                    return FailureReporter(descriptor, rank)
        return FailureReporter()

    def among(self, members: Sequence[int]) -> FailureReporter:
        """Reporter for a communicator of some of the ranks, in their new order."""
        known = self._ranks
        ranks = members if known is None else [known[rank] for rank in members]
        return FailureReporter(self._descriptor, self._rank, ranks)

    def tell_joined(self) -> None:
        """Say that this rank has met the others."""
        self._write(FailureReport(self._rank, "joined"))

    def tell(self, failure: RuntimeFailure) -> None:
        """Say why this rank cannot go on."""
        named: Sequence[int] = ()
        op, fingerprint = "", ""
        kind: Literal["lost", "differs", "timed_out", "cut", "corrupt", "failed"] = "failed"
        if isinstance(failure, PeerLost):
            kind, named, op = "lost", [failure.rank], failure.op or ""
        elif isinstance(failure, TimedOut):
            kind, named, op = "timed_out", failure.missing, failure.op
        elif isinstance(failure, LinkLost):
            kind = "corrupt" if isinstance(failure, LinkCorrupted) else "cut"
            named, op = failure.ranks, failure.op
        elif isinstance(failure, DesyncError):
            kind, named, op = "differs", [failure.rank], failure.op
            fingerprint = "" if failure.fingerprint is None else f"{failure.fingerprint:x}"
        known = self._job_ranks(named)
        self._write(FailureReport(self._rank, kind, known[:_MOST_NAMED], op[:_LONGEST_OP], fingerprint))

    def _job_ranks(self, named: Sequence[int]) -> tuple[int, ...]:
        inside = [rank for rank in named if rank >= 0]
        return tuple(inside if self._ranks is None else (self._ranks[rank] for rank in inside))

    def _write(self, report: FailureReport) -> None:
        # A forked child is not the rank that the launcher knows.
        if self._descriptor is None or os.getpid() != self._process:
            return
        line = msgspec.json.encode(report) + b"\n"
        assert len(line) <= select.PIPE_BUF
        with suppress(BlockingIOError, BrokenPipeError):  # full, or the launcher is gone
            os.write(self._descriptor, line)


class ReportPipe:
    """The launcher's end of the pipe, and the latest report of each rank."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self.writer, False)
        found = os.fstat(self.writer)
        self.address = f"{self.writer}:{found.st_dev}:{found.st_ino}"
        self.latest: dict[int, FailureReport] = {}
        self._partial = b""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._reader

    def read(self) -> bool:
        """Take the reports that have come; whether more may come."""
        for _ in range(_READS):
            try:
                data = os.read(self._reader, select.PIPE_BUF)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._take(line)
            if len(self._partial) > select.PIPE_BUF:
                self._partial = b""  # no report is that long
        return True

    def _take(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=FailureReport)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # from something else that was given the descriptor: as if nothing had been said
        if report.kind == "joined":
            self.latest.pop(report.rank, None)
        else:
            self.latest[report.rank] = report

    def close_writer(self) -> None:
        """Close the ranks' end here, once all of them have it."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writer()
        os.close(self._reader)
