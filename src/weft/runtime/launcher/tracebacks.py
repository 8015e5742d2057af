"""One traceback for each job: where a rank failed only because another did, its error is one line.

When a rank fails, all others raise `PeerLost` or a like error in whatever operation they are in, and Python
prints a traceback for each of them. They say the same, and the one that matters drowns in them. So the first
traceback of a job is shown whole, and of the others those that end with an error of a running job
(`weft.errors.RuntimeFailure` and what derives from it) are cut to their last line. Tracebacks of other errors
are shown whole on every rank.
"""

from __future__ import annotations

import re
from typing import Final

from weft import errors

_BEGINNING: Final = re.compile(rb"(?:\[rank\d+\]: ?)?Traceback \(most recent call last\):\s*\Z")
"""The first line of a traceback; torch writes the rank of a process group before it."""

_FRAME: Final = re.compile(rb"(?:\[rank\d+\]:(?: |\Z))?(?:\s|\Z)")
_CONSEQUENCES: Final = tuple(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RuntimeFailure)
)
_CONSEQUENCE: Final = re.compile(
    rb"(?:\[rank\d+\]: ?)?weft\.errors\.(?:%s)\b" % "|".join(_CONSEQUENCES).encode()
)
_MOST_LINES: Final = 1000
"""Lines of a traceback that are kept back until its error is known; a longer one is shown as it comes."""


class TracebackCount:
    """Whether a traceback of the job was shown; shared by the outputs of all its ranks."""

    def __init__(self) -> None:
        self.shown = False


class TracebackFilter:
    """Cuts tracebacks out of the standard error of one rank.

    Parameters
    ----------
    count
        Shared by all ranks of the job.
    """

    def __init__(self, count: TracebackCount) -> None:
        self._count = count
        self._held: list[bytes] = []

    def take(self, lines: list[bytes], *, at_end: bool = False) -> list[bytes]:
        """The lines to show now; those of a traceback whose error has not come yet are kept back."""
        shown: list[bytes] = []
        for line in lines:
            if not self._held and not _BEGINNING.match(line):
                shown.append(line)
                continue
            self._held.append(line)
            is_inside = len(self._held) == 1 or _FRAME.match(line)
            if not is_inside or len(self._held) >= _MOST_LINES:
                shown += self._judge()
        if at_end:
            shown += self._held
            self._held = []
        return shown

    def _judge(self) -> list[bytes]:
        """Show a traceback whole or only its last line, which is there now."""
        held, self._held = self._held, []
        if self._count.shown and _CONSEQUENCE.match(held[-1]):
            return held[-1:]
        self._count.shown = True
        return held
