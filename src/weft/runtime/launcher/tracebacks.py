"""One traceback for each job: where a rank failed because of another, or like it, its error is one line.

When a rank fails, all others raise `PeerLost` or a like error in whatever operation they are in, and Python
prints a traceback for each of them. They say the same, and the one that matters drowns in them. So the first
traceback of a job is shown whole, and of the others those that end with an error of a running job
(`weft.errors.RuntimeFailure` and what derives from it) are cut to their last line. A bug in a user's program
mostly strikes every rank at the same place: a traceback that another rank has shown, line for line, is one
line that names that rank. All other tracebacks are shown whole.
"""

from __future__ import annotations

import hashlib
import re
from keyword import iskeyword
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
_MARK: Final = re.compile(rb"\A\[rank\d+\]: ?")
_FILE: Final = re.compile(rb"(?:\[rank\d+\]: ?)?\s+File \"")
_PART: Final = r"(?:[^\W\d]\w*|<locals>)"
_ERROR: Final = re.compile(rf"({_PART}(?:\.{_PART})*)(?::(?: .*)?)?\s*\Z", re.DOTALL)
"""The last line of a traceback: ``Name`` or ``Name: message``, perhaps with a module before the name."""

_LONGEST_NAME: Final = 200
_MOST_KNOWN: Final = 1000
"""Tracebacks of a job that later ones are compared with."""

_MOST_LINES: Final = 1000
"""Lines of a traceback that are kept back until its error is known; a longer one is shown as it comes."""


class TracebackCount:
    """Which tracebacks of the job were shown; shared by the outputs of all its ranks."""

    def __init__(self) -> None:
        self.shown = False
        self._ranks: dict[bytes, int] = {}

    def shown_by(self, lines: list[bytes], rank: int) -> int | None:
        """The other rank that has shown this very traceback; if there is none, `rank` is from now on."""
        text = hashlib.blake2b(b"\n".join(_MARK.sub(b"", line) for line in lines)).digest()
        if text not in self._ranks and len(self._ranks) < _MOST_KNOWN:
            self._ranks[text] = rank
        first = self._ranks.get(text, rank)
        return None if first == rank else first


class TracebackFilter:
    """Cuts tracebacks out of the standard error of one rank.

    Parameters
    ----------
    count
        Shared by all ranks of the job.
    rank
        Whose standard error it is.
    """

    def __init__(self, count: TracebackCount, rank: int) -> None:
        self._count = count
        self._rank = rank
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
        """Show a traceback whole, or one line for it; its last line, which names the error, is there now."""
        held, self._held = self._held, []
        if self._count.shown and _CONSEQUENCE.match(held[-1]):
            return held[-1:]
        if _FRAME.match(held[-1]):  # too long to be compared
            self._count.shown = True
            return held
        name = _error_name(held)
        if name is None:
            return held
        self._count.shown = True
        first = self._count.shown_by(held, self._rank)
        return held if first is None else [b"the same %s as rank %d" % (name.encode(), first)]


def _error_name(lines: list[bytes]) -> str | None:
    """The error that a traceback ends with; None where it only looks like one, as a program may print it."""
    error = _ERROR.match(_MARK.sub(b"", lines[-1]).decode(errors="replace"))
    if (
        error is None
        or len(error[1]) > _LONGEST_NAME
        or iskeyword(error[1])
        or not any(map(_FILE.match, lines))
    ):
        return None
    return error[1]
