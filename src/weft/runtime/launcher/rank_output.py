"""Output of the ranks of a job, passed on line by line with the rank in front."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from weft import limits

if TYPE_CHECKING:
    from weft.runtime.launcher.tracebacks import TracebackFilter

_READ_BYTES: Final = 64 << 10
_PIPE_READS: Final = 64
"""Reads that empty the largest pipe an ordinary user can have, and more."""


class RankOutput:
    """Output of one rank, passed on line by line.

    Parameters
    ----------
    source
        The end of the pipe that the rank writes to.
    target
        Where its lines go.
    rank
        Number in front of each line; None for lines as they are.
    tracebacks
        Cuts tracebacks that say what another rank's has said; None to pass on everything.
    """

    def __init__(
        self,
        source: IO[bytes],
        target: IO[bytes],
        rank: int | None,
        tracebacks: TracebackFilter | None = None,
    ) -> None:
        self.source = source
        self._target = target
        self._tracebacks = tracebacks
        self._mark = b"" if rank is None else b"[%d] " % rank
        self._partial = b""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self.source.fileno()

    def carry(self) -> bool:
        """Give on what is there; whether more may come."""
        data = os.read(self.fileno(), _READ_BYTES)
        self._give(data)
        return bool(data)

    def finish(self) -> None:
        """Pass on the rest; does not wait for a process in another session, which may keep the pipe open."""
        os.set_blocking(self.fileno(), False)
        with suppress(BlockingIOError):
            for _ in range(_PIPE_READS):
                if not self.carry():
                    return
        self._give(b"")

    def _give(self, data: bytes) -> None:
        """Write complete lines; at the end of input, which empty data means, flush the last partial line."""
        *lines, rest = (self._partial + data).split(b"\n")
        if not data and rest:
            lines.append(rest)
            rest = b""
        *overlong, self._partial = _cut(rest)
        lines += overlong
        if self._tracebacks is not None:
            lines = self._tracebacks.take(lines, at_end=not data)
        if lines:
            self._target.write(b"".join(self._mark + piece + b"\n" for line in lines for piece in _cut(line)))
            self._target.flush()


def _cut(line: bytes) -> list[bytes]:
    bound = limits.MAX_OUTPUT_LINE_BYTES
    return [line[place : place + bound] for place in range(0, len(line), bound)] or [line]
